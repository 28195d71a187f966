// A PostgreSQL of the test's own, on a free port in a directory of its own.
import { execFileSync, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './server.mjs';

/** The path of a program of PostgreSQL: from the variable, or from the newest package. */
function binary(name) {
  const home = '/usr/lib/postgresql';
  const packaged = existsSync(home) ? readdirSync(home).sort((a, b) => Number(b) - Number(a)).map((version) => join(home, version, 'bin')) : [];
  const places = [process.env.CONVOKE_TEST_POSTGRES_BIN, ...packaged, ...(process.env.PATH ?? '').split(':')].filter(Boolean);
  const found = places.map((place) => join(place, name)).find((path) => existsSync(path));
  if (!found) throw new Error(`${name} of PostgreSQL is not installed; CONVOKE_TEST_POSTGRES_BIN can name its directory`);
  return found;
}

/** PostgreSQL refuses to be run by root: its own user runs it then. */
function unprivileged(program, args) {
  if (process.getuid() !== 0) return [program, args];
  return ['setpriv', ['--reuid', 'postgres', '--regid', 'postgres', '--clear-groups', '--', program, ...args]];
}

function freePort() {
  return new Promise((done) => {
    const probe = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

/** @returns {Promise<{ url: string, stop: () => Promise<void> }>} */
export async function startPostgres() {
  const home = mkdtempSync(join(tmpdir(), 'convoke-postgres-'));
  if (process.getuid() === 0) chownSync(home, ...['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, 'postgres']))));
  const data = join(home, 'data');
  const make = ['--no-sync', '--auth=trust', '--encoding=UTF8', '--locale=C', '--username', 'postgres', '--pgdata', data];
  execFileSync(...unprivileged(binary('initdb'), make), { cwd: home, stdio: 'pipe' });
  const port = await freePort();
  const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', `unix_socket_directories=${home}`, 'fsync=off', 'max_connections=200'];
  const [program, args] = unprivileged(binary('postgres'), ['-D', data, ...settings.flatMap((setting) => ['-c', setting])]);
  const child = spawn(program, args, { cwd: home, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.on('data', (text) => {
    log = (log + text).slice(-20_000);
  });
  const ended = new Promise((done) => child.on('exit', done));
  process.on('exit', () => child.kill('SIGQUIT'));
  await until('PostgreSQL is ready', () => log.includes('ready to accept connections'));
  const stop = async () => {
    child.kill('SIGQUIT');
    await ended;
    rmSync(home, { recursive: true, force: true });
  };
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop };
}
