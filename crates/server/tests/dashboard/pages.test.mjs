// Every page, in light and dark, at three widths: no error, no failed request, no violation of the policy or of
// accessibility, no page that is wider than its window.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, navigation, openPage, startBrowser, violations } from './browser.mjs';
import { fill } from './data.mjs';
import { startRedis } from './redis.mjs';
import { Server, until } from './server.mjs';

let redis;
let server;
let browser;
let made;
before(async () => {
  [redis, browser] = await Promise.all([startRedis(), startBrowser()]);
  server = await Server.start({ env: { CONVOKE_DASHBOARD__MESH: redis.url, CONVOKE_DASHBOARD__MESHES: 'orders-app' } });
  made = await fill(server);
  for (let at = 0; at < 2; at++) server.joinMesh('orders-app', redis.url);
  await until('the mesh has two instances', async () => (await server.get('/v1/mesh/orders-app')).instances.length === 2);
});
after(async () => {
  await browser?.close();
  await server?.stop();
  await redis?.stop();
});

/** How many pixels the page is wider than its window. */
function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

// A quick run has each scheme and each width; a full one every pair of them.
const LOOKS =
  process.env.CONVOKE_TEST_SCALE === 'full'
    ? ['light', 'dark'].flatMap((scheme) => [360, 1280, 2560].map((width) => [scheme, width]))
    : [['dark', 360], ['light', 1280], ['dark', 2560]];

for (const [colorScheme, width] of LOOKS) {
  test(`every page in ${colorScheme} at ${width} px`, async () => {
    const page = await openPage(browser, { colorScheme, viewport: { width, height: 900 }, reducedMotion: 'reduce' });
    await page.goto(`${server.url}/`);
    const places = await navigation(page);
    assert.ok(places.length >= 6, `the navigation has too few pages: ${places}`);
    const failures = [];
    for (const path of [...places, ...made.pages]) {
      await page.goto(server.url + path);
      await page.waitForSelector('main h1', { state: 'attached' });
      for (const line of await violations(page)) failures.push(`${path}: ${line}`);
      const wider = await overflow(page);
      if (wider > 0) failures.push(`${path}: ${wider} px wider than its window`);
      for (const problem of page.problems.splice(0)) failures.push(`${path}: ${problem}`);
    }
    await page.context().close();
    assert.ok(failures.length === 0, `\n${failures.join('\n')}`);
  });
}

test('an instance of a mesh is called by the form, and its reply is shown', async () => {
  const page = await openPage(browser);
  await page.goto(`${server.url}/mesh`);
  assert.equal(await page.locator('#instances tbody tr').count(), 2);
  const id = await page.locator('#instances tbody th').first().innerText();
  for (const [type, data, expected] of [['echo', '{"n": 9007199254740993}', /9007199254740993/], ['nothing', '{}', /no handler for this type/]]) {
    await page.fill('#instance', id);
    await page.fill('#type', type);
    await page.fill('#data', data);
    await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Call', exact: true }).click()]);
    assert.match(await page.innerText('main'), expected);
    assert.deepEqual(await violations(page), []);
  }
  expectCalm(page, 'the mesh');
  await page.context().close();
});

test('the dialog of the keys and an error have no violation', async () => {
  const page = await openPage(browser);
  await page.goto(`${server.url}/jobs`);
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open]');
  assert.deepEqual(await violations(page), []);
  expectCalm(page, 'the dialog of the keys');
  const response = await page.goto(`${server.url}/jobs/01990000-0000-7000-8000-000000000001`);
  assert.equal(response.status(), 404);
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});

test('large integers are shown exactly', async () => {
  const page = await openPage(browser);
  const id = await server.enqueue({ type: 'big', queue: 'nowhere' });
  await fetch(`${server.url}/v1/jobs`, { method: 'POST', body: '{"type":"big","queue":"nowhere","args":{"n":9007199254740993}}' });
  await page.goto(`${server.url}/jobs?q=type%3Abig`);
  await page.waitForSelector(`tr[data-key="${id}"]`);
  assert.match(await page.textContent('#jobs'), /9007199254740993/);
  await page.context().close();
});
