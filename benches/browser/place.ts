/** Nothing of an earlier run is to be left, be it only for the room. */
export async function removeAll(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const names: string[] = [];
  for await (const entry of root.keys()) names.push(entry);
  for (const entry of names) await root.removeEntry(entry, { recursive: true });
}

/** An event that nothing delays: timers wait for 4 ms once they follow each other. */
export function turn(): Promise<void> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
