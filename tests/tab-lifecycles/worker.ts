/** The worker of a tab whose lifecycle is tested. */

import { serve } from "varve";

export default serve("shop", {
  procedures: {
    /** Adds one to the count of a key, and returns it. */
    add(db, key: string): number {
      const next = Number(db.getText(key) ?? "0") + 1;
      db.set(key, String(next));
      return next;
    },
    /** Adds one, and never returns. */
    hang(db, key: string): number {
      db.set(key, "hung");
      for (;;);
    },
  },
});
