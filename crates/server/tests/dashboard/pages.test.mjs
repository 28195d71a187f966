// Every page, in light and dark, at three widths: no error, no failed request, no violation of the policy or of
// accessibility, no page that is wider than its window.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, navigation, openPage, startBrowser, violations } from './browser.mjs';
import { fill } from './data.mjs';
import { Server } from './server.mjs';

let server;
let browser;
let made;
before(async () => {
  [server, browser] = await Promise.all([Server.start(), startBrowser()]);
  made = await fill(server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
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
