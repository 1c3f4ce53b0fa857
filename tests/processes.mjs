// The processes of a browser, to kill or stop the one in which a page lives. Linux tells them in /proc.

import { readdirSync, readFileSync } from "node:fs";

/** A page is known by so many threads that its process has more of for a moment: more than by chance. */
const THREADS = 12;

/** Starts so many workers, and gives a function that ends them. */
const CROWD = `(async () => {
  const url = URL.createObjectURL(new Blob(["postMessage(0)"], { type: "text/javascript" }));
  const workers = Array.from({ length: ${THREADS} }, () => new Worker(url));
  await Promise.all(workers.map((one) => new Promise((resolve) => { one.onmessage = resolve; })));
  globalThis.disperse = () => { for (const one of workers) one.terminate(); };
})()`;

/** By page. It stays in its process as long as it stays at its origin. */
const known = new WeakMap();

/** The number of the process in which a page lives. */
export async function processOf(browser, page) {
  const found = known.get(page);
  if (found !== undefined) return found;
  const before = threadsOf(browser);
  await page.evaluate(CROWD);
  const growth = [...threadsOf(browser)].map(([pid, count]) => [
    pid,
    count - (before.get(pid) ?? 0),
  ]);
  await page.evaluate("disperse()");
  const [pid, most] = growth.reduce((a, b) => (b[1] > a[1] ? b : a));
  if (most < THREADS / 2) throw new Error("the process of a page was not found");
  known.set(page, pid);
  return pid;
}

/** How many threads each process of a browser has: each that descends from it. */
function threadsOf(browser) {
  const parents = new Map();
  const threads = new Map();
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one))) {
    try {
      const status = readFileSync(`/proc/${name}/status`, "utf8");
      parents.set(Number(name), Number(/^PPid:\s*(\d+)/m.exec(status)?.[1]));
      threads.set(Number(name), Number(/^Threads:\s*(\d+)/m.exec(status)?.[1]));
    } catch {
      // It ended meanwhile.
    }
  }
  const first = browser.process().pid;
  const descends = (pid) => pid === first || (parents.has(pid) && descends(parents.get(pid)));
  return new Map([...threads].filter(([pid]) => descends(pid)));
}
