/** The worker of the floor: it opens a file, writes once, and flushes. */

import type { Note } from "./start.js";

interface Handle {
  getSize(): number;
  read(buffer: Uint8Array, options: { at: number }): number;
  write(buffer: Uint8Array, options: { at: number }): number;
  flush(): void;
}

let handle: Handle;
let notes: Note[] = [];

/** Another page's worker has the file: this one only starts, as a worker that may have to take over. */
const isSecond = self.name === "second";

const opened = (async () => {
  if (isSecond) return;
  const root = await navigator.storage.getDirectory();
  const file = await root.getFileHandle("floor", { create: true });
  handle = await (
    file as unknown as { createSyncAccessHandle(): Promise<Handle> }
  ).createSyncAccessHandle();
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  if (bytes.length > 0) notes = JSON.parse(new TextDecoder().decode(bytes)) as Note[];
})();

/** Lists for other pages. */
if (!isSecond) {
  const others = new BroadcastChannel("floor");
  others.onmessage = async () => {
    await opened;
    others.postMessage(notes);
  };
}

addEventListener("message", async ({ data }) => {
  const note = data as Note | null;
  await opened;
  if (note !== null) {
    const at = notes.findIndex(({ id }) => id === note.id);
    notes[at < 0 ? notes.length : at] = note;
    handle.write(new TextEncoder().encode(JSON.stringify(notes)), { at: 0 });
    handle.flush();
  }
  postMessage(notes);
});
