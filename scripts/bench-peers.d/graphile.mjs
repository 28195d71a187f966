// graphile-worker. CONCURRENCY, LOCAL_QUEUE (jobs that are fetched at once) and COMPLETE_DELAY_MS (how long ends are
// collected) are in the environment.
import * as graphile from 'graphile-worker';
import pg from 'pg';

const TASK = 'noop';
const { Logger, WorkerPreset, makeWorkerUtils, run } = graphile.default ?? graphile;
const logger = new Logger(() => () => {});
const setting = (name) => Number(process.env[name]);

export async function producer(url) {
  const pool = new pg.Pool({ connectionString: url, max: 12 });
  pool.on('error', (error) => console.error(error.message));
  pool.on('connect', (client) => client.on('error', (error) => console.error(error.message)));
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  return {
    batch: (jobs) => utils.addJobs(jobs.map((payload) => ({ identifier: TASK, payload }))),
    single: (payload) => utils.addJob(TASK, payload),
    async pending() {
      const { rows } = await pool.query('select count(*)::int as count from graphile_worker._private_jobs');
      return rows[0].count;
    },
    async close() {
      await utils.release();
      await pool.end();
    },
  };
}

export async function worker(url, counts) {
  const delay = setting('COMPLETE_DELAY_MS');
  const preset = {
    extends: [WorkerPreset],
    worker: {
      connectionString: url,
      maxPoolSize: 10,
      concurrentJobs: setting('CONCURRENCY'),
      localQueue: { size: setting('LOCAL_QUEUE') },
      completeJobBatchDelay: delay,
      failJobBatchDelay: delay,
      logger,
    },
  };
  const taskList = { [TASK]: async (payload) => counts.started(payload) };
  const runner = await run({ preset, taskList, noHandleSignals: true });
  runner.events.on('job:complete', () => counts.ended());
}
