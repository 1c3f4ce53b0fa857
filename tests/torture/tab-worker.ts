/** The worker of a tab: its procedure takes an item and marks it. */

import { type Database, serve } from "varve";
import { struct, u32 } from "varve/struct";

/** The count of a tab's declared updates. */
export const Tally = struct("Tally", { count: u32 });

function add(db: Database, key: string, amount: number): void {
  db.set(key, String(Number(db.getText(key) ?? "0") + amount));
}

export default serve("tabs", {
  collections: { tallies: Tally },
  procedures: {
    /** Reduces the stock by one and stores the mark of the request. A repeated mark is counted in "twice". */
    drop(db, mark: string): number {
      if (db.has(mark)) add(db, "twice", 1);
      db.set(mark, "1");
      add(db, "stock", -1);
      return Number(db.getText("stock"));
    },
  },
});
