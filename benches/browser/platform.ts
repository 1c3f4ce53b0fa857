const RELEASE_TIMEOUT_MS = 30_000;
const PAUSE_MS = 100;

/** Retries, since a terminated worker releases its files a little later. */
async function remove(root: FileSystemDirectoryHandle, name: string): Promise<void> {
  const start = performance.now();
  for (;;) {
    try {
      return await root.removeEntry(name, { recursive: true });
    } catch (error) {
      const held = (error as DOMException).name === "NoModificationAllowedError";
      if (!held || performance.now() - start > RELEASE_TIMEOUT_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

/** Removes the files of earlier runs, so that they do not use the quota. */
export async function removeAll(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const names: string[] = [];
  for await (const entry of root.keys()) names.push(entry);
  for (const entry of names) await remove(root, entry);
}

/** Yields by a message, because nested timers are delayed by 4 ms. */
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
