// Finds the process of a page in /proc of Linux, to kill or suspend it.

import { readdirSync, readFileSync } from "node:fs";

/** The number of workers that a page starts so that its process is found by their number. */
const WORKERS = 12;

/** The names of workers' threads in Chromium and Firefox. Other threads start and end at any time. */
const WORKER = /^(DedicatedWorker|DOM Worker)/;

/** Starts these workers, and defines `endWorkers`. */
const START_WORKERS = `(async () => {
  const url = URL.createObjectURL(new Blob(["postMessage(0)"], { type: "text/javascript" }));
  const workers = Array.from({ length: ${WORKERS} }, () => new Worker(url));
  await Promise.all(workers.map((one) => new Promise((resolve) => { one.onmessage = resolve; })));
  globalThis.endWorkers = () => { for (const one of workers) one.terminate(); };
})()`;

/** The process ids by page. A page keeps its process as long as it keeps its origin. */
const known = new WeakMap();

/** The id of the process that runs a page. */
export async function processOf(browser, page) {
  const found = known.get(page);
  if (found !== undefined) return found;
  const before = workersIn(browser);
  await page.evaluate(START_WORKERS);
  const growth = [...workersIn(browser)].map(([pid, count]) => [
    pid,
    count - (before.get(pid) ?? 0),
  ]);
  await page.evaluate("endWorkers()");
  const [pid, most] = growth.reduce((a, b) => (b[1] > a[1] ? b : a));
  if (most < WORKERS / 2) throw new Error("the process of a page was not found");
  known.set(page, pid);
  return pid;
}

/** Suspends a process, and waits until all of its threads have stopped. */
export async function stop(pid) {
  process.kill(pid, "SIGSTOP");
  while (threadsOf(pid, "stat").some((stat) => !/\) [TZX] /.test(stat))) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** The number of workers in each process of a browser, by process id. */
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

/** The contents of this file of /proc for each thread of a process. */
function threadsOf(pid, file) {
  const folder = `/proc/${pid}/task`;
  try {
    const names = readdirSync(folder);
    return names
      .map((name) => read(`${folder}/${name}/${file}`))
      .filter((content) => content !== "");
  } catch {
    return [];
  }
}

/** The content of a file, or "" if its process or thread has ended. */
function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
