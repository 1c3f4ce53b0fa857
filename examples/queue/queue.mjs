// A queue of jobs that survives kill -9. Try:
//   node queue.mjs add "resize ann.jpg" "resize bob.jpg"
//   node queue.mjs work      kill it with kill -9 while it works, and start it again
//   node queue.mjs results
//
// A worker leases a job: until the lease ends no other takes it, and if the worker dies, the job is due again. The result is
// stored in the same commit in which the job is removed, so each job has exactly one.

import { setTimeout as sleep } from "node:timers/promises";
import { open } from "varve";
import { auto, str, struct, timestamp, u16 } from "varve/struct";

const LEASE_MS = Number(process.env.LEASE_MS ?? 30_000);

const Job = struct("Job", { due: timestamp, attempts: u16, task: str });
const Result = struct("Result", { attempts: u16, text: str });

const db = await open("queue"); // ./queue.varve
const jobs = db.collection("jobs", Job, { key: auto(), indexes: { byDue: "due" } });
const results = db.collection("results", Result, { key: auto() });

/** Takes the job that has been due for longest; `undefined` if none is. */
function take() {
  const [first] = jobs.index.byDue.entries({ lte: new Date(), limit: 1 });
  if (first === undefined) return undefined;
  const [id, job] = first;
  const attempts = job.attempts + 1;
  jobs.set(id, { due: new Date(Date.now() + LEASE_MS), attempts, task: job.task });
  db.commit(); // the lease is in the file before the work begins
  return { id, attempts, task: jobs.get(id).task };
}

function finish({ id, attempts }, text) {
  db.transaction(() => {
    results.set(id, { attempts, text });
    jobs.delete(id);
  });
  db.commit();
}

async function work() {
  while (jobs.count() > 0) {
    const job = take();
    if (job === undefined) {
      await sleep(100);
      continue;
    }
    await sleep(20); // here is the work
    finish(job, job.task.toUpperCase());
    console.log(`${job.id}: ${job.task}, attempt ${job.attempts}`);
  }
}

const [command, ...tasks] = process.argv.slice(2);
if (command === "add") {
  for (const task of tasks) jobs.push({ due: new Date(), attempts: 0, task });
} else if (command === "work") {
  await work();
} else if (command === "results") {
  for (const [id, { attempts, text }] of results.entries())
    console.log(`${id}\t${attempts}\t${text}`);
} else {
  console.error('node queue.mjs add "a task" … | work | results');
  process.exitCode = 2;
}
await db.close();
