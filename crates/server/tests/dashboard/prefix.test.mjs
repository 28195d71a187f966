// Behind a reverse proxy that serves the node under a path, which it removes or keeps.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { expectCalm, navigation, openPage, startBrowser } from './browser.mjs';
import { fill } from './data.mjs';
import { Server } from './server.mjs';

const PREFIX = '/ops/convoke';
let server;
let browser;
let made;
const proxies = [];
before(async () => {
  [server, browser] = await Promise.all([Server.start({ env: { CONVOKE_HTTP__BASE_PATH: PREFIX } }), startBrowser()]);
  made = await fill(server);
});
after(async () => {
  await browser?.close();
  for (const proxy of proxies) {
    proxy.closeAllConnections();
    proxy.close();
  }
  await server?.stop();
});

/** Starts a proxy that passes on what is below the prefix, and nothing else. Returns its address. */
async function startProxy(removesPrefix) {
  const target = new URL(server.url);
  const proxy = http.createServer((request, response) => {
    if (request.url !== PREFIX && !request.url.startsWith(`${PREFIX}/`)) {
      response.writeHead(404).end(`outside of ${PREFIX}: ${request.url}`);
      return;
    }
    const path = removesPrefix ? request.url.slice(PREFIX.length) || '/' : request.url;
    const passed = http.request({ host: target.hostname, port: target.port, path, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    request.pipe(passed);
  });
  proxies.push(proxy);
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  return `http://127.0.0.1:${proxy.address().port}`;
}

for (const removesPrefix of [true, false]) {
  test(`every page, form and stream behind a proxy that ${removesPrefix ? 'removes' : 'keeps'} the path`, async () => {
    const origin = await startProxy(removesPrefix);
    const page = await openPage(browser);
    await page.goto(`${origin}${PREFIX}/`);
    const places = await navigation(page);
    assert.ok(places.length >= 6 && places.every((path) => path.startsWith(PREFIX)), `${places}`);
    for (const path of [...places, ...made.pages.map((path) => PREFIX + path)]) {
      const response = await page.goto(origin + path);
      assert.equal(response.status(), 200, path);
      const outside = await page.$$eval(
        'a[href], form[action], button[formaction]',
        (all, prefix) => all.map((each) => each.getAttribute('href') ?? each.getAttribute('formaction') ?? each.getAttribute('action')).filter((url) => !url.startsWith(prefix) && !url.startsWith('#')),
        PREFIX,
      );
      assert.deepEqual(outside, [], path);
    }
    // A form leads back to a page below the prefix, and the stream refreshes it.
    await page.goto(`${origin}${PREFIX}/queues/mail`);
    await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Pause', exact: true }).click()]);
    assert.equal(new URL(page.url()).pathname, `${PREFIX}/queues/mail`);
    await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Resume', exact: true }).click()]);
    const id = await server.enqueue({ type: 'behind', queue: 'nobody' });
    await page.goto(`${origin}${PREFIX}/jobs/${id}`);
    await server.post(`/v1/jobs/${id}/cancel`);
    await page.waitForFunction(() => document.getElementById('head').textContent.includes('cancelled'));
    expectCalm(page, PREFIX);
    await page.context().close();
  });
}
