import { type Database, destroy, open } from "varve";
import { readProduct, restock, serveBuyers } from "../drop.js";
import type { Rival } from "./rival.js";

const NAME = "drop-bench";

/** varve on OPFS, exactly as a program would use it. */
export async function varveRival(): Promise<Rival> {
  let db: Database = await open(NAME);
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
      db = await open(NAME);
      return readProduct(db);
    },
    async dispose() {
      await db.close();
      await destroy(NAME);
    },
  };
}
