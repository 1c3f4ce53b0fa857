// The processes of a browser, to kill or stop the one in which a page lives. Linux tells them in /proc.

import { readdirSync, readFileSync } from "node:fs";

/** A page is known by so many workers that its process has more of for a moment: more than by chance. */
const WORKERS = 12;

/** As Chromium and Firefox name a worker's thread. Those of other kinds come and go, with new processes too. */
const WORKER = /^(DedicatedWorker|DOM Worker)/;

/** Starts so many workers, and gives a function that ends them. */
const CROWD = `(async () => {
  const url = URL.createObjectURL(new Blob(["postMessage(0)"], { type: "text/javascript" }));
  const workers = Array.from({ length: ${WORKERS} }, () => new Worker(url));
  await Promise.all(workers.map((one) => new Promise((resolve) => { one.onmessage = resolve; })));
  globalThis.disperse = () => { for (const one of workers) one.terminate(); };
})()`;

/** By page. It stays in its process as long as it stays at its origin. */
const known = new WeakMap();

/** The number of the process in which a page lives. */
export async function processOf(browser, page) {
  const found = known.get(page);
  if (found !== undefined) return found;
  const before = workersIn(browser);
  await page.evaluate(CROWD);
  const growth = [...workersIn(browser)].map(([pid, count]) => [
    pid,
    count - (before.get(pid) ?? 0),
  ]);
  await page.evaluate("disperse()");
  const [pid, most] = growth.reduce((a, b) => (b[1] > a[1] ? b : a));
  if (most < WORKERS / 2) throw new Error("the process of a page was not found");
  known.set(page, pid);
  return pid;
}

/** Stops a process, and waits until it stands: one thread hears it first, and the others run on meanwhile. */
export async function stop(pid) {
  process.kill(pid, "SIGSTOP");
  while (threadsOf(pid, "stat").some((stat) => !/\) [TZX] /.test(stat))) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** How many workers run in each process of a browser: each that descends from it. */
function workersIn(browser) {
  const parents = new Map();
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one))) {
    const status = read(`/proc/${name}/status`);
    parents.set(Number(name), Number(/^PPid:\s*(\d+)/m.exec(status)?.[1]));
  }
  const first = browser.process().pid;
  const descends = (pid) => pid === first || (parents.has(pid) && descends(parents.get(pid)));
  const count = (pid) => threadsOf(pid, "comm").filter((name) => WORKER.test(name)).length;
  return new Map([...parents.keys()].filter(descends).map((pid) => [pid, count(pid)]));
}

/** What is reported of each thread of a process, in that file. */
function threadsOf(pid, file) {
  const folder = `/proc/${pid}/task`;
  try {
    const names = readdirSync(folder);
    return names
      .map((name) => read(`${folder}/${name}/${file}`))
      .filter((reported) => reported !== "");
  } catch {
    return [];
  }
}

/** Nothing, if what it tells of has ended meanwhile. */
function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
