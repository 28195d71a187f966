// Runs one instance and executes commands, a line of JSON each; replies and events are lines of JSON too.
//
//   node peer.mjs '{"key":"k","port":6379,…}'
//   {"id":1,"op":"invoke","to":2,"type":"echo","data":{},"timeoutMs":1000}  →  {"id":1,"ok":{}} or {"id":1,"error":…,"name":…}

import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import { Mesh } from './mesh.mjs';

const { key, port, ...options } = JSON.parse(process.argv[2]);
const mesh = new Mesh(key, { ...options, redis: { port, host: '127.0.0.1' } });
const print = message => process.stdout.write(`${JSON.stringify(message)}\n`);
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

mesh.registerHandler('echo', data => data);
mesh.registerHandler('nothing', () => undefined);
mesh.registerHandler('sleep', async ({ ms }) => {
    await sleep(ms);
    return { slept: ms };
});
mesh.registerHandler('fail', ({ message }) => {
    throw new Error(message);
});
mesh.registerBroadcastHandler('clear', (data, from) => print({ event: 'broadcast', data, from }));
mesh.setNodeCleanedUpCallback(instanceId => print({ event: 'cleaned', instanceId }));

const operations = {
    invoke: ({ to, type, data, timeoutMs }) => mesh.invoke(to, type, data, timeoutMs),
    // Many calls of `echo`, so many at once; returns how many came back as something else.
    many: async ({ to, count, width, from }) => {
        let next = 0;
        let mismatches = 0;
        const lane = async () => {
            while (next < count) {
                const data = { n: next++, from, text: `ü"\\${next}` };
                const reply = await mesh.invoke(to, 'echo', data);
                if (!isDeepStrictEqual(reply, data)) mismatches++;
            }
        };
        await Promise.all(Array.from({ length: width }, lane));
        return { mismatches };
    },
    nodes: () => mesh.getNodes(),
    broadcast: ({ type, data }) => mesh.broadcast(type, data),
    leader: () => mesh.isLeader,
    stop: async () => {
        await mesh.stop();
        setTimeout(() => process.exit(0), 10);
    },
};

createInterface({ input: process.stdin })
    .on('line', async line => {
        const { id, op, ...rest } = JSON.parse(line);
        try {
            const ok = (await operations[op](rest)) ?? null;
            print({ id, ok });
        } catch (error) {
            print({ id, error: error.message, name: error.constructor.name });
        }
    })
    .on('close', () => process.exit(0));

await mesh.start();
print({ event: 'started', instanceId: mesh.instanceId });
