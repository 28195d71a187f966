// A server with tokens: a login makes a session, and a session may do what its token may.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, navigation, openPage, startBrowser, violations } from './browser.mjs';
import { fill } from './data.mjs';
import { Server } from './server.mjs';

const tokens = { read: 'token-of-a-reader', enqueue: 'token-of-a-shop', admin: 'token-of-an-admin', worker: 'token-of-a-worker' };
const setting = [...Object.entries(tokens).map(([role, token]) => `${role}:${token}`), 'read/guest/hidden:token-of-a-guest'].join(',');

let server;
let browser;
let made;
before(async () => {
  const env = { CONVOKE_HTTP__TOKENS: setting };
  [server, browser] = await Promise.all([Server.start({ env, token: tokens.admin }), startBrowser()]);
  made = await fill(server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens a page by the login form, as its viewer does. */
async function logIn(token, path = '/', settings = {}) {
  const page = await openPage(browser, settings);
  await page.goto(server.url + path);
  await page.fill('#token', token);
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Log in' }).click()]);
  return page;
}

/** Leaves out the browser's message about the response 401 of a page that asks for a login. */
function forgetRefusals(page) {
  page.problems = page.problems.filter((problem) => !/\b401\b/.test(problem));
}

test('a page leads to the login, and the login back to the page', async () => {
  const page = await openPage(browser);
  await page.goto(`${server.url}/queues/mail`);
  assert.match(page.url(), /\/login/);
  assert.ok(!(await page.content()).includes('node-1'), 'the login page names the node');
  assert.deepEqual(await violations(page), []);
  await page.fill('#token', 'no token of this server');
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Log in' }).click()]);
  assert.match(await page.innerText('main'), /not one of the configuration/);
  await page.fill('#token', tokens.admin);
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Log in' }).click()]);
  assert.equal(new URL(page.url()).pathname, '/queues/mail');
  const cookies = await page.context().cookies();
  const session = cookies.find(({ name }) => name === 'convoke_session');
  assert.deepEqual([session.httpOnly, session.sameSite, session.secure], [true, 'Strict', false]);
  assert.ok(session.expires > Date.now() / 1000, 'the session never ends');
  assert.ok(!session.value.includes(tokens.admin));
  assert.equal(await page.evaluate(() => document.cookie), '', 'a script can read the session');
  // With the session, every page opens, follows the server, and its forms act.
  forgetRefusals(page);
  const places = await navigation(page);
  for (const path of [...places, ...made.pages]) {
    const response = await page.goto(server.url + path);
    assert.equal(response.status(), 200, path);
    assert.ok(!page.url().includes('/login'), path);
  }
  const id = await server.enqueue({ type: 'watched', queue: 'nobody' });
  await page.goto(`${server.url}/jobs/${id}`);
  await server.post(`/v1/jobs/${id}/cancel`);
  await page.waitForFunction(() => document.getElementById('head').textContent.includes('cancelled'));
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Retry', exact: true }).click()]);
  assert.equal((await server.get(`/v1/jobs/${id}`)).status, 'pending');
  expectCalm(page, 'a session');
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Log out' }).click()]);
  await page.goto(`${server.url}/jobs`);
  assert.match(page.url(), /\/login/);
  await page.context().close();
});

test('a reader sees no action, and its forged forms get 403', async () => {
  const page = await logIn(tokens.read);
  const places = await navigation(page);
  for (const path of [...places, ...made.pages.filter((path) => !/\/(new|edit)\b/.test(path))]) {
    const response = await page.goto(server.url + path);
    assert.equal(response.status(), 200, path);
    const forms = await page.$$eval('form[method=post]', (forms) => forms.filter((form) => !form.action.endsWith('/logout')).map((form) => form.outerHTML));
    assert.deepEqual(forms, [], path);
  }
  // The token of its own page is good, and its role is not.
  const csrf = await page.$eval('form[action$="/logout"] input[name=csrf]', (input) => input.value);
  const { pending } = made.jobs;
  const forged = [`/jobs/${pending}/cancel`, `/jobs/${made.jobs.failed}/retry`, '/queues/mail/pause', '/schedules/nightly/trigger', '/schedules/nightly/remove', '/jobs/enqueue'];
  for (const path of forged) {
    const status = await page.evaluate(async ([path, csrf]) => {
      const body = new URLSearchParams({ csrf, type: 'forged' });
      return (await fetch(path, { method: 'POST', body })).status;
    }, [path, csrf]);
    assert.equal(status, 403, path);
  }
  assert.equal((await server.get(`/v1/jobs/${pending}`)).status, 'pending');
  assert.equal((await server.get('/v1/queues/mail')).paused, false);
  assert.equal((await server.get('/v1/jobs?type=forged')).jobs.length, 0);
  await page.context().close();
});

test('payloads are hidden from a token that says so', async () => {
  const page = await logIn('token-of-a-guest');
  for (const path of [`/jobs/${made.jobs.completed}`, '/jobs?q=type%3Aemail.send', '/queues/mail', '/schedules/nightly']) {
    await page.goto(server.url + path);
    const text = await page.content();
    for (const secret of ['ada@example.org', 'a line of warn', '"sent"']) assert.ok(!text.includes(secret), `${path} shows ${secret}`);
  }
  await page.context().close();
});

test('a worker logs in nowhere, and a shop acts on jobs alone', async () => {
  const worker = await logIn(tokens.worker);
  assert.match(await worker.innerText('main'), /cannot read/);
  await worker.context().close();
  const page = await logIn(tokens.enqueue, `/jobs/${made.jobs.scheduled}`);
  await page.locator('summary', { hasText: 'Cancel' }).waitFor();
  await page.goto(`${server.url}/queues/mail`);
  assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
  await page.context().close();
});
