// A real Chromium, and pages that record all that goes wrong in them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..');
const tools = process.env.CONVOKE_TEST_BROWSER_TOOLS ?? join(root, 'target/dashboard');
const require = createRequire(join(resolve(tools), 'package.json'));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** Starts Chromium with a new profile, which is deleted when it ends. */
export function startBrowser() {
  return chromium.launch({
    executablePath: process.env.CONVOKE_TEST_CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
  });
}

/** Opens a page. `page.problems` lists errors, failed requests, violations of the policy and dialogs. */
export async function openPage(browser, settings = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...settings });
  const problems = [];
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.problems = problems;
  if (settings.javaScriptEnabled !== false) {
    await page.exposeFunction('reportViolation', (text) => problems.push(text));
    await page.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => {
        window.reportViolation(`policy: ${event.violatedDirective} of ${event.blockedURI} ${event.sourceFile ?? ''}`);
      });
    });
  }
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`error: ${error.stack ?? error}`));
  page.on('requestfailed', (request) => {
    const reason = request.failure()?.errorText ?? '';
    // Leaving a page ends its streams.
    if (reason !== 'net::ERR_ABORTED') problems.push(`request: ${request.url()} ${reason}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) problems.push(`response: ${response.status()} ${response.url()}`);
  });
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return page;
}

/** Fails if something went wrong in the page since it was asked last. */
export function expectCalm(page, where) {
  assert.deepEqual(page.problems.splice(0), [], where);
}

/** What axe-core objects to, a line for each element. */
export async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, help, nodes }) => ({ id, help, nodes: nodes.map(({ html, any }) => [html, any[0]?.message ?? '']) }));
  });
  return found.flatMap(({ id, help, nodes }) => nodes.slice(0, 5).map(([html, why]) => `${id} (${help}): ${html.slice(0, 300)} ${why}`));
}

/** The paths of the navigation's pages, without the documentation of the API. */
export function navigation(page) {
  return page.$$eval('nav.side a[data-key]', (links) =>
    links.filter((link) => !new URL(link.href).pathname.endsWith('/docs/')).map((link) => link.getAttribute('href')),
  );
}
