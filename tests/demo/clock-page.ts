/** A page whose clock a test has in its hands: what it does with a database comes to an end all the same. */

import { connect } from "varve/client";

/** Connects, writes, watches and closes: what was seen. */
async function use(): Promise<{ watched: string[]; read: string | undefined; failed: string }> {
  const worker = () => new Worker("/worker.js", { type: "module" });
  const client = connect("shop", { worker });
  const watched: string[] = [];
  let heard = () => {};
  const both = new Promise<void>((resolve) => {
    heard = resolve;
  });
  const watching = client.watch({ gte: "a" }, (changes) => {
    for (const { key } of changes) watched.push(key);
    if (watched.length === 2) heard();
  });
  await client.set("a", "1");
  await client.set("b", "2");
  await both;
  await client.flush();
  const read = await client.getText("a");
  await client.compact();
  watching.close();
  await client.close();
  // What nobody answers is given up by a clock that nobody has stopped.
  const deaf = connect("deaf", { worker: () => new MessageChannel().port1, timeout: 300 });
  const failed = await deaf.getText("a").then(
    () => "answered",
    ({ code }) => code,
  );
  await deaf.close();
  return { watched, read, failed };
}

Object.assign(globalThis, { use });
document.documentElement.dataset.ready = "";
