// @ts-check
// The script of every page. Each module adds one thing that moves; the pages work without any of them.
import { startBulk } from './bulk.js';
import { startFilter } from './filter.js';
import { startKeys } from './keys.js';
import { startLive } from './live.js';
import { startLog } from './log.js';
import { startRows } from './rows.js';
import { startShards } from './shards.js';
import { startTimes } from './times.js';

for (const element of document.querySelectorAll('.script')) element.removeAttribute('hidden');
for (const element of document.querySelectorAll('[data-without-script]')) element.setAttribute('hidden', '');
startTimes();
startKeys();
startFilter();
startRows();
startBulk();
startLog();
startShards();
startLive();
