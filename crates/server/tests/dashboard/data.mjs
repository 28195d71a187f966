// Jobs in every status, dead letters, schedules, queues, logs and workers, made through the API as users make them.
import { until } from './server.mjs';

/** @returns {Promise<{ jobs: Record<string, string>, pages: string[] }>} jobs by status, and the pages of what was made */
export async function fill(server) {
  const jobs = {};
  const worker = await server.worker('mailer-1', ['mail', 'reports'], { name: 'mailer' });
  const template = { queue: 'mail', tags: ['eu', 'billing'], correlationId: 'order-17', maxRetries: 0 };

  jobs.completed = await server.enqueue({ ...template, type: 'email.send', args: { to: 'ada@example.org' } });
  const [done] = await worker.take();
  await worker.report(
    done,
    { kind: 'started' },
    { kind: 'progress', percent: 40, message: 'rendered' },
    ...['trace', 'debug', 'info', 'warn', 'error'].map((level, at) => ({ kind: 'log', level, message: `a line of ${level}`, seq: at + 1 })),
    { kind: 'completed', result: { sent: 1, parts: ['text', 'html'] } },
  );

  jobs.failed = await server.enqueue({ ...template, type: 'email.send', args: { to: 'nobody' } });
  for (let at = 0; at < 4; at++) await server.enqueue({ ...template, type: at % 2 ? 'email.send' : 'invoice.make', args: { at } });
  for (const run of await worker.take(5)) {
    await worker.report(run, { kind: 'started' }, { kind: 'failed', error: `timeout after ${run.attempt + 30} s\n  at send (mail.rs:17)` });
  }

  jobs.cancelled = await server.enqueue({ ...template, type: 'email.send', delay: '1h' });
  await server.post(`/v1/jobs/${jobs.cancelled}/cancel`, { reason: 'sent by hand' });
  jobs.timedOut = await server.enqueue({ ...template, type: 'slow.call' });
  const [late] = await worker.take();
  await worker.report(late, { kind: 'started' }, { kind: 'timedOut' });

  const retrying = await server.enqueue({ ...template, type: 'flaky', maxRetries: 5, retryPolicy: { initialDelay: '1h', maxDelay: '1h' } });
  const [flaky] = await worker.take();
  await worker.report(flaky, { kind: 'started' }, { kind: 'failed', error: 'connection refused' });

  jobs.running = await server.enqueue({ ...template, type: 'report.daily', queue: 'reports', timeout: '1h' });
  const [running] = await worker.take();
  await worker.report(running, { kind: 'started' }, { kind: 'progress', percent: 62, message: 'page 31 of 50' }, { kind: 'log', message: 'it runs' });

  jobs.dispatched = await server.enqueue({ ...template, type: 'report.daily', queue: 'reports' });
  await worker.take();

  jobs.scheduled = await server.enqueue({ ...template, type: 'email.send', delay: '2h' });
  for (let at = 0; at < 60; at++) await server.enqueue({ type: 'import.file', queue: 'imports', args: { file: `part-${at}.csv`, note: 'x'.repeat(400) } });
  jobs.pending = await server.enqueue({ type: 'import.file', queue: 'imports', uniqueKey: 'imports', priority: 'high' });

  await server.call('PATCH', '/v1/queues/imports', { paused: true });
  await server.call('PATCH', '/v1/queues/api', { rateLimit: { limit: 100, per: '1s' }, concurrency: 20 });
  await server.call('PUT', '/v1/schedules/nightly', { type: 'report.nightly', queue: 'nights', cron: '0 3 * * *', tz: 'Europe/Berlin', args: { all: true } });
  await server.call('PUT', '/v1/schedules/pulse', { type: 'ping', queue: 'shell', every: '1s' });
  await server.call('PUT', '/v1/schedules/quiet', { type: 'ping', queue: 'shell', every: '1h' });
  await server.post('/v1/schedules/quiet/pause');

  // A worker as users run it: a process with a command.
  server.runWorker('shell', 'echo "hello, $CONVOKE_JOB_TYPE"', '--id', 'shell-1', '--name', 'shell worker');
  const shell = await server.enqueue({ type: 'greet', queue: 'shell', args: { name: 'Ada' } });
  await until('the command has run', async () => (await server.get(`/v1/jobs/${shell}?wait=20s`)).status === 'completed');
  await until('the schedule has ticked', async () => (await server.get('/v1/jobs?schedule=pulse')).jobs.length > 1);
  await server.post('/v1/schedules/pulse/pause');

  for (const id of ['a', 'b', 'c']) server.joinShards('orders', id, 64);
  const assigned = async () => (await server.get('/v1/shards/orders')).workers;
  await until('the shards are assigned', async () => (await assigned()).length === 3);

  for (const [status, id] of Object.entries(jobs)) {
    const shown = await server.get(`/v1/jobs/${id}`);
    if (shown.status !== status) throw new Error(`a job is ${shown.status} and should be ${status}`);
  }
  const pages = [
    ...[...Object.values(jobs), retrying].map((id) => `/jobs/${id}`),
    '/jobs?q=status%3Afailed', '/jobs?q=status%3Anonsense', '/jobs?q=queue%3Aimports+type%3Aimport.file',
    '/jobs/new', `/jobs/new?copy=${jobs.completed}`,
    '/queues/mail', '/queues/imports', '/queues/api', '/workers/mailer-1', '/workers/shell-1',
    '/schedules/nightly', '/schedules/pulse', '/schedules/quiet', '/schedules/new', '/schedules/nightly/edit',
    '/jobs?notice=cancelled', '/shards/orders',
  ];
  return { jobs, pages };
}
