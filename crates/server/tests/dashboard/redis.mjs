// A Redis of the test's own, on a free port, which keeps nothing.
import { spawn } from 'node:child_process';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { until } from './server.mjs';

function freePort() {
  return new Promise((done) => {
    const probe = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

/** @returns {Promise<{ url: string, stop: () => Promise<void> }>} */
export async function startRedis() {
  const port = await freePort();
  const settings = ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
  const child = spawn('redis-server', settings, { cwd: tmpdir(), stdio: ['ignore', 'pipe', 'ignore'] });
  let log = '';
  child.stdout.on('data', (text) => {
    log = (log + text).slice(-20_000);
  });
  const ended = new Promise((done) => child.on('exit', done));
  process.on('exit', () => child.kill('SIGKILL'));
  await until('Redis is ready', () => log.includes('Ready to accept connections'));
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  return { url: `redis://127.0.0.1:${port}`, stop };
}
