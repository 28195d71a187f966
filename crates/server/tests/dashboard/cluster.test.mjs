// Three nodes on PostgreSQL alone: a leader that was stopped and goes on, a node that drains, a leader that is killed. The
// page of the cluster shows the terms, the refused write and the handoffs; they are read from the DOM.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, openPage, startBrowser, violations } from './browser.mjs';
import { startPostgres } from './postgres.mjs';
import { Server, until } from './server.mjs';

const TIMINGS = {
  CONVOKE_CLUSTER__HEARTBEAT_INTERVAL: '250ms',
  CONVOKE_CLUSTER__DEAD_NODE_TIMEOUT: '2s',
  CONVOKE_CLUSTER__LEASE_DURATION: '2s',
  CONVOKE_CLUSTER__RENEW_INTERVAL: '500ms',
  CONVOKE_CLUSTER__ORPHAN_CHECK_INTERVAL: '500ms',
  CONVOKE_CLUSTER__HANDOFF_ACK_TIMEOUT: '500ms',
  CONVOKE_CLUSTER__HANDOFF_ORPHAN_WAIT: '1s',
  CONVOKE_CLUSTER__HANDOFF_HARD_TIMEOUT: '6s',
  CONVOKE_WORKER__HEARTBEAT_INTERVAL: '250ms',
  CONVOKE_WORKER__STALE_AFTER: '5s',
  // A leader that is stopped between the check of its clock and a write, whose write then arrives.
  CONVOKE_FAILPOINT: 'overstay',
};

let postgres;
let browser;
const nodes = [];
let isOver = false;
let traffic;
before(async () => {
  [postgres, browser] = await Promise.all([startPostgres(), startBrowser()]);
  for (const name of ['node-1', 'node-2', 'node-3']) nodes.push(await Server.start({ name, store: postgres.url, env: TIMINGS }));
});
after(async () => {
  isOver = true;
  await traffic;
  await browser?.close();
  for (const node of nodes) {
    if (!node.process.hasEnded) node.process.child.kill('SIGCONT');
    await node.stop();
  }
  await postgres?.stop();
});

const up = () => nodes.filter((node) => !node.process.hasEnded);
const named = (name) => nodes.find((node) => node.options.name === name);

/** The node that leads according to `witness`, with its epoch. */
async function leader(witness, isNew = () => true) {
  return until('a node leads', async () => {
    const { leader, epoch } = await witness.get('/v1/cluster');
    const name = typeof leader === 'string' ? leader : leader?.nodeId ?? leader?.id;
    return name && isNew(name) && { node: named(name), name, epoch };
  });
}

/** The texts of the cells of a table of the page, a row each. */
function rows(page, table) {
  return page.$$eval(`#${table} tbody tr`, (rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));
}

/** Opens the page of the cluster at a node until a row of a table is as expected, and returns it. */
async function row(page, node, table, is) {
  return until(`a row of ${table} at ${node.options.name}`, async () => {
    await page.goto(`${node.url}/cluster`);
    const shown = await rows(page, table);
    const found = shown.find(is);
    if (!found) throw new Error(JSON.stringify(shown));
    return found;
  });
}

test('the page of the cluster shows terms, a refused write and handoffs', async () => {
  // Each node owns a long run, and the leader has jobs to dispatch all the time.
  for (const node of nodes) {
    const others = nodes.filter((other) => other !== node).map(({ url }) => url);
    const queue = `of-${node.options.name}`;
    node.workerUrl = [node.url, ...others].join(',');
    node.runWorker(queue, 'sleep 600', '--id', `worker-of-${node.options.name}`);
    const id = await node.enqueue({ type: 'long', queue });
    await until('the long run has started', async () => (await node.get(`/v1/jobs/${id}`)).status === 'running');
  }
  traffic = (async () => {
    while (!isOver) {
      const node = up().find((node) => !node.isStopped);
      await node?.enqueue({ type: 'quick', queue: 'of-node-1' }).catch(() => {});
      await node?.enqueue({ type: 'waits', queue: 'nobody', delay: '100ms' }).catch(() => {});
      await new Promise((done) => setTimeout(done, 100));
    }
  })();

  const page = await openPage(browser);
  const first = await leader(nodes[0]);
  const witness = nodes.find((node) => node !== first.node);

  // A leader that is stopped: another leads, and the open page shows it.
  await page.goto(`${witness.url}/cluster`);
  await page.waitForSelector(`.lane[data-node="${first.name}"] .term[data-epoch="${first.epoch}"]`, { state: 'attached' });
  first.node.isStopped = true;
  first.node.process.child.kill('SIGSTOP');
  const second = await leader(witness, (name) => name !== first.name);
  await page.waitForSelector(`.lane[data-node="${second.name}"] .term[data-epoch="${second.epoch}"]`, { state: 'attached' });

  // It goes on: its late write is refused, and the page of another node explains which and why.
  first.node.process.child.kill('SIGCONT');
  first.node.isStopped = false;
  const refused = await row(page, witness, 'refused', ([, node, text]) => node === first.name && text.includes(`epoch ${first.epoch}`));
  assert.match(refused[2], new RegExp(`the store refused .* of .*: it carried epoch ${first.epoch}, the sealed epoch is \\d+`));
  await row(page, witness, 'terms', ([epoch, node, , ended]) => epoch === `${first.epoch}` && node === first.name && ended !== '–');
  // All agree again.
  await until('all nodes agree', async () => {
    await page.goto(`${witness.url}/cluster`);
    return (await page.locator('#agreement.good-edge').count()) === 1;
  });
  assert.deepEqual(await violations(page), []);

  // A node drains by request of an operator: its run gets another owner.
  const leading = await leader(witness);
  const drained = nodes.find((node) => node !== leading.node && node !== witness) ?? nodes.find((node) => node !== leading.node);
  const survivor = nodes.find((node) => node !== drained && node !== leading.node) ?? leading.node;
  await survivor.post(`/v1/nodes/${drained.options.name}/drain`);
  await drained.process.ended;
  const moved = await row(page, survivor, 'handoffs', ([, , from, , reason]) => from === drained.options.name && /shutdown|drain/i.test(reason));
  assert.ok(moved[3] !== drained.options.name && moved[5] !== '', `${moved}`);

  // The leader is killed: its term has an end, and its run another owner.
  const last = await leader(survivor);
  const heir = up().find((node) => node !== last.node);
  await last.node.process.stop('SIGKILL');
  const next = await leader(heir, (name) => name !== last.name);
  assert.ok(next.epoch > last.epoch);
  await row(page, heir, 'terms', ([epoch, node, , ended]) => epoch === `${last.epoch}` && node === last.name && ended !== '–');
  await row(page, heir, 'terms', ([epoch, node, , ended]) => epoch === `${next.epoch}` && node === next.name && ended === '–');
  await row(page, heir, 'handoffs', ([, , from, to]) => from === last.name && to === heir.options.name);
  expectCalm(page, 'the page of the cluster');
  await page.context().close();
});
