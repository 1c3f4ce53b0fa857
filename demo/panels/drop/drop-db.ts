/** The worker's file: it opens the database, and does the purchases of all tabs. */

import { type Database, opfs } from "varve";
import { serve } from "varve/serve";
import { bool, f64, option, str, struct, u32 } from "varve/struct";

const Shoe = struct("Shoe", { name: str, drop: u32, onSale: bool, atStart: u32, stock: u32 });
/** What a tab has bought, the answers that it had when it last asked, and its longest wait for one. */
const Tab = struct("Tab", { name: str, bought: u32, answered: u32, longestMs: f64 });
/** Which tab's worker owned the file, and how long after the kill it answered. */
const Owner = struct("Owner", { name: str, before: option(str), tookMs: option(f64) });

const shoes = (db: Database) => db.collection("shoes", Shoe);
const tabs = (db: Database) => db.collection("tabs", Tab);

/** What a tab says with each purchase. */
export interface Asking {
  id: string;
  name: string;
  answered: number;
  longestMs: number;
}

export default serve("live-drop", {
  storage: opfs("varve-demo"),
  collections: { shoes: Shoe, tabs: Tab, owners: { of: Owner, key: u32 } },
  // Each call is one transaction, and is done exactly once, also if its worker is killed meanwhile.
  procedures: {
    start(db: Database, stock: number) {
      const drop = (shoes(db).get("yeezy")?.drop ?? 0) + 1;
      const name = "Yeezy Boost 350 V2";
      tabs(db).clear();
      shoes(db).set("yeezy", { name, drop, onSale: true, atStart: stock, stock });
    },

    stop(db: Database) {
      shoes(db).updateIf("yeezy", (shoe) => {
        shoe.onSale = false;
      });
    },

    /** Takes one pair if there is one, and counts it for the tab. Returns whether it did. */
    buy(db: Database, drop: number, { id, name, answered, longestMs }: Asking) {
      const shoe = shoes(db).get("yeezy");
      if (shoe?.drop !== drop) return false;
      const bought = tabs(db).get(id)?.bought ?? 0;
      const isSold = shoe.onSale && shoe.stock > 0;
      if (isSold) {
        shoes(db).updateIf("yeezy", (one) => {
          one.stock -= 1;
        });
      }
      tabs(db).set(id, { name, bought: bought + (isSold ? 1 : 0), answered, longestMs });
      return isSold;
    },

    /** What is left and what each tab has bought, as of one moment. */
    count(db: Database) {
      const shoe = shoes(db).get("yeezy")?.snapshot();
      return { shoe, bought: [...tabs(db).values()].map((tab) => tab.bought) };
    },
  },
});
