import { opfs } from "varve";
import { handleRequests } from "../browser/handle-requests.js";
import { removeAll, turn } from "../browser/platform.js";
import type { LargeResult } from "./platform.js";
import { amountsFor, runLarge } from "./run.js";

/** Types of workers only, which TypeScript's DOM library lacks. */
interface AccessHandle {
  read(bytes: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  flush(): void;
  close(): void;
}
interface InWorker extends FileSystemFileHandle {
  createSyncAccessHandle(): Promise<AccessHandle>;
}

const FOLDER = "bench-large";

async function folder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create: true });
}

handleRequests<{ quick: boolean }, LargeResult>(async ({ quick }, progress) => {
  await removeAll();
  return runLarge(
    {
      storage: opfs(FOLDER),
      async raw(name, database = false) {
        const options = { create: !database };
        const path = database ? `${name}.varve` : name;
        const handle = (await (await folder()).getFileHandle(path, options)) as InWorker;
        const access = await handle.createSyncAccessHandle();
        return {
          read: (bytes, at) => access.read(bytes, { at }),
          write: (bytes, at) => access.write(bytes, { at }),
          flush: () => access.flush(),
          close: () => access.close(),
        };
      },
      async remove(name) {
        const from = await folder();
        for await (const entry of from.keys()) {
          if (entry === name || entry.startsWith(`${name}.varve`)) await from.removeEntry(entry);
        }
      },
      turn,
      progress,
    },
    amountsFor(quick),
  );
});
