/** A page whose clock a test replaces. Its operations on a database must end all the same. */

import { connect } from "varve/client";

/** Connects, writes, watches and closes. Returns the results. */
async function use(): Promise<{ watched: string[]; read: string | undefined; failed: string }> {
  const worker = () => new Worker("/worker.js", { type: "module" });
  const client = connect("shop", { worker });
  const watched: string[] = [];
  let resolveBoth = () => {};
  const both = new Promise<void>((resolve) => {
    resolveBoth = resolve;
  });
  const watching = client.watch({ gte: "a" }, (changes) => {
    for (const { key } of changes) watched.push(key);
    if (watched.length === 2) resolveBoth();
  });
  await client.set("a", "1");
  await client.set("b", "2");
  await both;
  await client.flush();
  const read = await client.getText("a");
  await client.compact();
  watching.close();
  await client.close();
  // The timeout of a call uses a clock that the page's replacement does not affect.
  const unanswered = connect("unanswered", {
    worker: () => new MessageChannel().port1,
    timeout: 300,
  });
  const failed = await unanswered.getText("a").then(
    () => "answered",
    ({ code }) => code,
  );
  await unanswered.close();
  return { watched, read, failed };
}

Object.assign(globalThis, { use });
document.documentElement.dataset.ready = "";
