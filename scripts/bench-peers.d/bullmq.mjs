// BullMQ. Jobs are removed when they have completed, as its guide advises for many jobs. CONCURRENCY is in the environment.
import { Queue, Worker } from 'bullmq';

const QUEUE = 'noop';
const connection = (url) => {
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port), maxRetriesPerRequest: null };
};

export async function producer(url) {
  const queue = new Queue(QUEUE, { connection: connection(url), defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  // Left by the round before.
  await queue.obliterate({ force: true });
  return {
    batch: (jobs) => queue.addBulk(jobs.map((data) => ({ name: 'noop', data }))),
    single: (data) => queue.add('noop', data),
    async pending() {
      const counts = await queue.getJobCounts('wait', 'active', 'prioritized');
      return counts.wait + counts.active + counts.prioritized;
    },
    close: () => queue.close(),
  };
}

export async function worker(url, counts) {
  const options = { connection: connection(url), concurrency: Number(process.env.CONCURRENCY) };
  const worker = new Worker(QUEUE, async (job) => counts.started(job.data), options);
  worker.on('completed', () => counts.ended());
  worker.on('error', (error) => console.error(error.message));
  await worker.waitUntilReady();
}
