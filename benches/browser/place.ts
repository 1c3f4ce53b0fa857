const PATIENCE_MS = 30_000;
const PAUSE_MS = 100;

/** A worker that was ended gives its files back a little later. */
async function remove(root: FileSystemDirectoryHandle, name: string): Promise<void> {
  const start = performance.now();
  for (;;) {
    try {
      return await root.removeEntry(name, { recursive: true });
    } catch (error) {
      const held = (error as DOMException).name === "NoModificationAllowedError";
      if (!held || performance.now() - start > PATIENCE_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

/** Nothing of an earlier run is to be left, be it only for the room. */
export async function removeAll(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const names: string[] = [];
  for await (const entry of root.keys()) names.push(entry);
  for (const entry of names) await remove(root, entry);
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
