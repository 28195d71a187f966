// Turns the figures of `convoke bench jobs --json` into a line as measure.mjs writes it: node ours.mjs SYSTEM FILE
import { readFileSync } from 'node:fs';

const [system, file] = process.argv.slice(2);
const { figures } = JSON.parse(readFileSync(file, 'utf8'));
console.log(JSON.stringify({ system, ...figures }));
