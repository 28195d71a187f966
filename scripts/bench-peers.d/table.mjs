// Prints the medians of all rounds and our ratios to the peers, as tables of Markdown: node table.mjs FILE [JSON]
import { readFileSync, writeFileSync } from 'node:fs';

const OURS = {
  sqlite: 'Convoke, SQLite',
  'postgres-redis': 'Convoke, PostgreSQL + Redis',
  'postgres-redis-bus': 'Convoke, PostgreSQL + Redis, bus worker',
  postgres: 'Convoke, PostgreSQL alone',
};
const PEERS = {
  graphile: 'graphile-worker, as documented',
  'graphile-best': 'graphile-worker, best settings',
  pgboss: 'pg-boss',
  'pgboss-best': 'pg-boss, larger batches',
  bullmq: 'BullMQ, no persistence',
  'bullmq-aof': 'BullMQ, append-only file',
};
const FIGURES = {
  batchPerSecond: 'enqueue in batches, /s',
  drainPerSecond: 'drain, /s',
  endToEndPerSecond: 'end to end, /s',
  singlePerSecond: 'enqueue one by one, /s',
  startP50Ms: 'start p50, ms',
  startP99Ms: 'start p99, ms',
};
const OF_DISK = { flushP50Ms: 'flush p50, ms', flushP99Ms: 'flush p99, ms' };

const [file, json] = process.argv.slice(2);
const rounds = readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

const medians = {};
for (const system of new Set(rounds.map((figures) => figures.system))) {
  const of = rounds.filter((figures) => figures.system === system);
  const keys = Object.keys(of[0]).filter((key) => key !== 'system');
  medians[system] = Object.fromEntries(keys.map((key) => [key, median(of.map((figures) => figures[key]))]));
}

const shown = (value) => {
  if (value === undefined) return '';
  return value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toFixed(2);
};
const row = (cells) => console.log(`| ${cells.join(' | ')} |`);
const table = (head, rows) => {
  row(head);
  row(head.map(() => '---'));
  rows.forEach(row);
  console.log();
};

const names = { ...PEERS, ...OURS };
const measured = Object.keys(names).filter((system) => medians[system]);
const columns = { ...FIGURES, ...OF_DISK };
table(
  ['', ...Object.values(columns)],
  measured.map((system) => [names[system], ...Object.keys(columns).map((key) => shown(medians[system][key]))]),
);

const [ours, peers] = [OURS, PEERS].map((some) => Object.keys(some).filter((system) => medians[system]));
const ratios = {};
for (const [key, title] of Object.entries(FIGURES)) {
  const rows = ours.map((system) => {
    ratios[system] ??= {};
    ratios[system][key] = Object.fromEntries(
      peers.map((peer) => [peer, Number((medians[system][key] / medians[peer][key]).toFixed(3))]),
    );
    return [OURS[system], ...peers.map((peer) => `${ratios[system][key][peer].toFixed(2)} ×`)];
  });
  if (rows.length > 0 && peers.length > 0) table([`${title.split(',')[0]}: ours to`, ...peers.map((peer) => PEERS[peer])], rows);
}
if (json) writeFileSync(json, `${JSON.stringify({ rounds, medians, ratios }, null, 2)}\n`);
