// Makes the pictures of docs/guide/11-dashboard.md: `node crates/server/tests/dashboard/pictures.mjs [DIRECTORY]`. The data
// are those of the tests; times, ids and ages differ from run to run, nothing else does.
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openPage, startBrowser } from './browser.mjs';
import { fill } from './data.mjs';
import { Server } from './server.mjs';

const docs = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '../../../../docs'));
const server = await Server.start({ env: { CONVOKE_DASHBOARD__NAME: 'staging', CONVOKE_DASHBOARD__COLOR: 'teal' } });
const browser = await startBrowser();
try {
  const { jobs } = await fill(server);
  const pictures = [
    ['overview', '/', 'light', 615],
    ['jobs', '/jobs', 'light', 800],
    ['job', `/jobs/${jobs.completed}`, 'dark', 1000],
    ['dead-letters', '/dead-letters', 'light', 620],
    ['schedule', '/schedules/nightly', 'light', 700],
    ['queue', '/queues/mail', 'dark', 900],
  ];
  for (const [name, path, colorScheme, height] of pictures) {
    const page = await openPage(browser, { colorScheme, viewport: { width: 1280, height }, timezoneId: 'Europe/Lisbon', locale: 'en-GB' });
    await page.goto(server.url + path);
    await page.waitForSelector('main h1', { state: 'attached' });
    await page.screenshot({ path: join(docs, `dashboard-${name}.png`) });
    if (page.problems.length > 0) throw new Error(`${path}: ${page.problems.join('; ')}`);
    await page.context().close();
    console.log(join(docs, `dashboard-${name}.png`));
  }
} finally {
  await browser.close();
  await server.stop();
}
