/** The worker of a tab that is tortured: it serves what counts every drop once. */

import { type Database, serve } from "varve";
import { struct, u32 } from "varve/struct";

/** What a tab has counted in the declarative way. */
export const Tally = struct("Tally", { count: u32 });

function add(db: Database, key: string, amount: number): void {
  db.set(key, String(Number(db.getText(key) ?? "0") + amount));
}

export default serve("tabs", {
  collections: { tallies: Tally },
  procedures: {
    /** One less in stock, and a mark of who took it. A second time would show in "twice". */
    drop(db, mark: string): number {
      if (db.has(mark)) add(db, "twice", 1);
      db.set(mark, "1");
      add(db, "stock", -1);
      return Number(db.getText("stock"));
    },
  },
});
