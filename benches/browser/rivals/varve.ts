import { type Database, open, opfs } from "varve";
import { readProduct, restock, serveBuyers } from "../../../demo/drop.js";
import type { Rival } from "./rival.js";

/** A separate folder, so that everything can be removed at once. */
const FOLDER = "drop-bench-varve";

async function removeFolder(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  await root.removeEntry(FOLDER, { recursive: true }).catch((error: unknown) => {
    if (!(error instanceof DOMException && error.name === "NotFoundError")) throw error;
  });
}

/** varve on OPFS, with default options. */
export async function varveRival(): Promise<Rival> {
  // A stopped run leaves its file behind, and the next run would start with a longer log.
  await removeFolder();
  let db: Database = await open("drop", { storage: opfs(FOLDER) });
  return {
    id: "varve",
    name: "varve",
    durability: "written: survives a crash of tab or browser",
    async restock(cycles) {
      restock(db, cycles);
    },
    async serve(cycles, grouping) {
      serveBuyers(db, { cycles, commitEach: grouping === "each" });
    },
    async reopenAndRead() {
      await db.close();
      db = await open("drop", { storage: opfs(FOLDER) });
      return readProduct(db);
    },
    async dispose() {
      await db.close();
      await removeFolder();
    },
  };
}
