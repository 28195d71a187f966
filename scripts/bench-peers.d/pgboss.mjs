// pg-boss, with notifications, so that a worker need not poll for a new job. BATCH (jobs that are fetched at once) and
// FETCHERS are in the environment.
import { PgBoss } from 'pg-boss';
import pg from 'pg';

const QUEUE = 'noop';
const setting = (name) => Number(process.env[name]);

async function start(url, max) {
  const boss = new PgBoss({ connectionString: url, max, useListenNotify: true, supervise: false, schedule: false });
  boss.on('error', (error) => console.error(error.message));
  await boss.start();
  return boss;
}

export async function producer(url) {
  const boss = await start(url, 12);
  await boss.createQueue(QUEUE, { notify: true });
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  return {
    batch: (jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))),
    single: (data) => boss.send(QUEUE, data),
    async pending() {
      const text = "select count(*)::int as count from pgboss.job where name = $1 and state < 'completed'";
      const { rows } = await pool.query(text, [QUEUE]);
      return rows[0].count;
    },
    async close() {
      await boss.stop({ graceful: false });
      await pool.end();
    },
  };
}

export async function worker(url, counts) {
  const boss = await start(url, 10);
  const options = {
    batchSize: setting('BATCH'),
    localConcurrency: setting('FETCHERS'),
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  await boss.work(QUEUE, options, async (jobs) => {
    for (const job of jobs) counts.started(job.data);
    for (const _ of jobs) counts.ended();
  });
}
