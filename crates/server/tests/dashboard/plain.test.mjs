// Without a script: every page shows its data, and forms act.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, openPage, startBrowser } from './browser.mjs';
import { fill } from './data.mjs';
import { Server } from './server.mjs';

let server;
let browser;
let made;
let page;
before(async () => {
  [server, browser] = await Promise.all([Server.start(), startBrowser()]);
  made = await fill(server);
  page = await openPage(browser, { javaScriptEnabled: false });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const open = (path) => page.goto(server.url + path);
const text = () => page.locator('main').innerText();

/** Presses a button and waits for the page that the form leads to. */
async function press(name) {
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name, exact: true }).first().click()]);
  expectCalm(page, name);
}

/** Opens the question before an act that cannot be undone, or stops a run. */
async function confirm(name) {
  await page.locator('details.confirm summary', { hasText: new RegExp(`^${name}$`) }).first().click();
}

test('every page shows its data', async () => {
  await open('/');
  const places = await page.locator('nav.side a[data-key]').evaluateAll((links) => links.map((link) => link.getAttribute('href')));
  for (const path of [...places.filter((path) => !path.endsWith('/docs/')), ...made.pages]) {
    const response = await open(path);
    assert.equal(response.status(), 200, path);
    expectCalm(page, path);
  }
  const expected = {
    '/': ['imports', 'paused', 'no worker'],
    '/jobs': ['import.file', 'Next page'],
    '/dead-letters': ['email.send', 'timeout after #', 'Retry the group'],
    '/schedules': ['nightly', 'pulse', 'quiet'],
    '/queues': ['mail', 'imports', 'reports'],
    '/workers': ['mailer-1', 'shell-1'],
    [`/jobs/${made.jobs.completed}`]: ['email.send', 'ada@example.org', 'a line of warn', 'order-17', 'billing', 'mailer-1'],
    [`/jobs/${made.jobs.running}`]: ['62', 'page 31 of 50', 'it runs'],
    [`/jobs/${made.jobs.failed}`]: ['timeout after 31 s'],
    '/queues/api': ['100/1s', '20'],
    '/workers/mailer-1': ['report.daily'],
    '/schedules/nightly': ['Europe/Berlin', '0 3 * * *'],
  };
  for (const [path, words] of Object.entries(expected)) {
    await open(path);
    const shown = await text();
    for (const word of words) assert.ok(shown.includes(word), `${path} does not show ${word}:\n${shown}`);
  }
});

test('the list is filtered and has further pages', async () => {
  await open('/jobs');
  await page.fill('#filter', 'status:failed type:invoice.make');
  await press('Filter');
  assert.equal(await page.locator('#jobs tbody tr').count(), 2);
  await open('/jobs?q=queue%3Aimports');
  const first = await page.locator('#jobs tbody tr').evaluateAll((rows) => rows.map((row) => row.dataset.key));
  await Promise.all([page.waitForEvent('load'), page.getByRole('link', { name: 'Next page' }).click()]);
  const second = await page.locator('#jobs tbody tr').evaluateAll((rows) => rows.map((row) => row.dataset.key));
  assert.ok(second.length > 0 && second.every((id) => !first.includes(id)), `${first} and ${second}`);
  assert.equal(first.length + second.length, 61);
});

test('a queue is paused, resumed and limited', async () => {
  await open('/queues/mail');
  await press('Pause');
  assert.match(await text(), /Paused: its jobs stay pending/);
  assert.equal((await server.get('/v1/queues/mail')).paused, true);
  await press('Resume');
  assert.equal((await server.get('/v1/queues/mail')).paused, false);
  await page.fill('#rate', '7/1s');
  await press('Save the limits');
  assert.deepEqual((await server.get('/v1/queues/mail')).rateLimit, { limit: 7, per: '1s' });
});

test('a job is cancelled and retried', async () => {
  await open(`/jobs/${made.jobs.scheduled}`);
  await confirm('Cancel');
  await page.fill('#reason', 'not needed');
  await press('Cancel the job');
  const cancelled = await server.get(`/v1/jobs/${made.jobs.scheduled}`);
  assert.deepEqual([cancelled.status, cancelled.error], ['cancelled', 'not needed']);
  assert.match(await text(), /The job is cancelled/);
  await press('Retry');
  assert.match(await text(), /The job is pending again/);
  assert.ok(['pending', 'dispatched'].includes((await server.get(`/v1/jobs/${made.jobs.scheduled}`)).status));
});

test('a copy of a job is enqueued with edited arguments', async () => {
  await open(`/jobs/new?copy=${made.jobs.completed}`);
  await page.fill('textarea[name=args]', '{"to": "eve@example.org"}');
  await press('Enqueue');
  const id = new URL(page.url()).pathname.split('/').pop();
  const job = await server.get(`/v1/jobs/${id}`);
  assert.deepEqual([job.type, job.args, job.tags], ['email.send', { to: 'eve@example.org' }, ['eu', 'billing']]);
});

test('a schedule is triggered, paused, resumed, edited and added', async () => {
  await open('/schedules/nightly');
  await press('Trigger now');
  const { jobs } = await server.get('/v1/jobs?type=report.nightly');
  assert.equal(jobs.length, 1);
  await press('Pause');
  assert.equal((await server.get('/v1/schedules/nightly')).paused, true);
  await press('Resume');
  await open('/schedules/nightly/edit');
  await page.fill('#cron', '0 4 * * *');
  await press('Save');
  const edited = await server.get('/v1/schedules/nightly');
  assert.deepEqual([edited.cron, edited.tz, edited.type], ['0 4 * * *', 'Europe/Berlin', 'report.nightly']);
  await open('/schedules/new');
  await page.fill('#name', 'by-hand');
  await page.fill('#every', '1h');
  await page.fill('input[name=type]', 'ping');
  await press('Save');
  assert.equal((await server.get('/v1/schedules/by-hand')).type, 'ping');
});

test('a group of dead letters is retried and another is deleted', async () => {
  await open('/dead-letters');
  const before = await page.locator('#groups > section').count();
  await press('Retry the group');
  await confirm('Delete the group');
  await press('Delete for ever');
  assert.ok((await page.locator('#groups > section').count()) < before);
  assert.match(await text(), /Jobs that were deleted/);
});

test('selected jobs are cancelled', async () => {
  await open('/jobs?q=queue%3Aimports+status%3Apending');
  for (const at of [0, 1]) await page.locator('#jobs tbody input[type=checkbox]').nth(at).check();
  await confirm('Cancel selected');
  await press('Cancel the selected jobs');
  const { jobs } = await server.get('/v1/jobs?queue=imports&status=cancelled');
  assert.equal(jobs.length, 2);
});
