// Live pages: a page follows the server without being loaded again, keeps what its viewer does, and survives a restart.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, openPage, startBrowser } from './browser.mjs';
import { Server, until } from './server.mjs';

let server;
let browser;
let worker;
before(async () => {
  [server, browser] = await Promise.all([Server.start(), startBrowser()]);
  worker = await server.worker('w-1', ['q']);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens a page that notices if it is loaded again. */
async function openLive(path) {
  const page = await openPage(browser, { viewport: { width: 1280, height: 500 } });
  await page.goto(server.url + path);
  await page.evaluate(() => {
    window.loadedOnce = true;
  });
  return page;
}

const isSame = (page) => page.evaluate(() => window.loadedOnce === true);

test('the page of a job follows the job', async () => {
  const id = await server.enqueue({ type: 'steps', queue: 'q', args: {} });
  const page = await openLive(`/jobs/${id}`);
  const [run] = await worker.take();
  await worker.report(run, { kind: 'started' }, { kind: 'progress', percent: 30, message: 'a third' }, { kind: 'log', message: 'line one' });
  await page.waitForFunction(() => document.querySelector('#state progress')?.value === 30);
  await page.waitForFunction(() => document.getElementById('log').textContent.includes('line one'));
  await page.waitForFunction(() => document.getElementById('head').textContent.includes('running'));
  await worker.report(run, { kind: 'log', message: 'line two' }, { kind: 'completed', result: { answer: 42 } });
  await page.waitForFunction(() => document.getElementById('head').textContent.includes('completed'));
  await page.waitForFunction(() => document.getElementById('result').textContent.includes('42'));
  await page.waitForFunction(() => document.getElementById('log').textContent.includes('line two'));
  assert.equal(await page.locator('#log .line').count(), 2, 'a line is shown twice or not at all');
  assert.ok(await isSame(page));
  expectCalm(page, 'the page of a job');
  await page.context().close();
});

test('the scrubber replays rebalances, also those of workers that have left', async () => {
  const owned = async () => (await server.get('/v1/shards/orders')).workers.map(({ workerId, shards }) => [workerId, shards.length]);
  const equals = (wanted) => async () => JSON.stringify(await owned()) === JSON.stringify(wanted);
  server.joinShards('orders', 'a', 64);
  await until('a owns all', equals([['a', 64]]));
  const second = server.joinShards('orders', 'b', 64);
  await until('b owns half', equals([['a', 32], ['b', 32]]));
  await second.stop('SIGTERM');
  await until('a owns all again', equals([['a', 64]]));
  const page = await openLive('/shards/orders');
  await page.waitForFunction(() => Number(document.getElementById('scrubber').max) >= 3);
  const rows = () => page.$$eval('#grid tr[data-worker]', (rows) => rows.map((row) => [row.dataset.worker, row.querySelector('[data-count]').textContent]));
  assert.deepEqual(await rows(), [['', '0'], ['a', '64']]);
  await page.focus('#scrubber');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.getElementById('scrubbed').textContent.startsWith('before version'));
  assert.deepEqual(await rows(), [['', '0'], ['a', '32'], ['b', '32']]);
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await rows(), [['', '0'], ['a', '64']]);
  expectCalm(page, 'the scrubber');
  await page.context().close();
});

test('a refresh keeps focus, typed text, selection and scroll position', async () => {
  for (let at = 0; at < 40; at++) await server.enqueue({ type: `waits.${at}`, queue: 'nobody' });
  const page = await openLive('/jobs');
  // A job below the visible part is selected, and the list is scrolled to it.
  const row = page.locator('#jobs tbody tr').nth(25);
  const id = await row.getAttribute('data-key');
  await row.locator('input[type=checkbox]').check();
  await page.locator('#filter').focus();
  await page.keyboard.type('type:wai');
  await page.evaluate(() => {
    document.getElementById('filter').setSelectionRange(2, 5);
    window.scrollTo(0, 300);
  });
  const before = await page.evaluate(() => window.scrollY);
  assert.ok(before > 0, 'the page is too short to be scrolled');
  await server.post(`/v1/jobs/${id}/cancel`);
  await page.waitForFunction((id) => document.querySelector(`tr[data-key="${id}"]`)?.textContent.includes('cancelled'), id);
  const kept = await page.evaluate((id) => {
    const filter = document.getElementById('filter');
    return {
      focus: document.activeElement?.id,
      text: filter.value,
      selection: [filter.selectionStart, filter.selectionEnd],
      scroll: window.scrollY,
      checked: document.querySelector(`tr[data-key="${id}"] input`).checked,
      same: window.loadedOnce === true,
    };
  }, id);
  assert.deepEqual(kept, { focus: 'filter', text: 'type:wai', selection: [2, 5], scroll: before, checked: true, same: true });
  // A new job appears at the top.
  const fresh = await server.enqueue({ type: 'fresh', queue: 'nobody' });
  await page.waitForSelector(`tr[data-key="${fresh}"]`, { state: 'attached' });
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'filter');
  expectCalm(page, 'the list of jobs');
  await page.context().close();
});

test('keys focus the filter, open pages and show themselves', async () => {
  const page = await openLive('/jobs');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'filter');
  await page.keyboard.type('gq?/');
  assert.equal(await page.inputValue('#filter'), 'gq?/', 'keys in a field are text');
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog#keys[open]');
  const listed = await page.locator('dialog#keys dl').innerText();
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog#keys:not([open])', { state: 'attached' });
  const places = await page.$$eval('nav.side a[data-key]', (links) => links.map((link) => [link.dataset.key, link.getAttribute('href'), link.textContent]));
  assert.equal(new Set(places.map(([key]) => key)).size, places.length, `a key stands for two pages: ${places}`);
  for (const [key, path, label] of places.filter(([, path]) => !path.endsWith('/docs/'))) {
    assert.ok(listed.includes(label), `${label} is not in the list of keys`);
    await page.keyboard.press('g');
    await Promise.all([page.waitForEvent('load'), page.keyboard.press(key)]);
    assert.equal(new URL(page.url()).pathname, path);
  }
  await page.goto(`${server.url}/jobs`);
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.keyboard.press('x');
  assert.equal(await page.locator('#jobs tbody tr').first().locator('input').isChecked(), true);
  const href = await page.locator('#jobs tbody tr').first().locator('th a').getAttribute('href');
  await Promise.all([page.waitForEvent('load'), page.keyboard.press('Enter')]);
  assert.equal(new URL(page.url()).pathname, href);
  expectCalm(page, 'keys');
  await page.context().close();
});

test('all controls are reached by Tab', async () => {
  const page = await openLive('/queues/q');
  const wanted = await page.$$eval('main a[href], main button, main input:not([type=hidden]), main select, main summary', (all) =>
    all.filter((each) => each.checkVisibility()).length);
  const reached = new Set();
  for (let at = 0; at < 200 && reached.size < wanted; at++) {
    await page.keyboard.press('Tab');
    const name = await page.evaluate(() => {
      const at = document.activeElement;
      const isControl = at?.closest('main') && at.matches('a[href], button, input, select, summary');
      return isControl ? [...document.querySelectorAll('*')].indexOf(at) : null;
    });
    if (name !== null) reached.add(name);
  }
  assert.equal(reached.size, wanted);
  await page.context().close();
});

test('a banner appears when the server stops, and the page recovers when it is back', async () => {
  const id = await server.enqueue({ type: 'survivor', queue: 'nobody' });
  const page = await openLive('/jobs');
  await page.waitForSelector(`tr[data-key="${id}"]`);
  await page.fill('#filter', 'typed before');
  await server.process.stop('SIGKILL');
  await page.waitForFunction(() => /interrupted/.test(document.getElementById('banner').textContent));
  assert.ok(await page.locator('#banner').isVisible());
  assert.ok(await page.locator(`tr[data-key="${id}"]`).isVisible(), 'what was shown stays');
  await server.run(server.address);
  await page.waitForFunction(() => document.getElementById('banner').textContent === '');
  const later = await server.enqueue({ type: 'later', queue: 'nobody' });
  await page.waitForSelector(`tr[data-key="${later}"]`, { state: 'attached' });
  assert.equal(await page.inputValue('#filter'), 'typed before');
  assert.ok(await isSame(page));
  // Requests to a server that is stopped fail, and the browser reports it: nothing else may go wrong.
  const others = page.problems.filter((problem) => !/net::ERR_|ERR_CONNECTION_REFUSED|50[23]/.test(problem));
  assert.deepEqual(others, []);
  await page.context().close();
});
