/** `follow` across kills of the process: each commit once, none left out. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { file, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { random, turn } from "../support/values.js";
import { folder } from "./support/processes.js";
import { start } from "./support/programs.js";
import { hasOutput } from "./support/runtime-programs.js";

/** How often the process is killed. */
const { VARVE_FOLLOW_KILLS = "24" } = process.env;
const KILLS = Number(VARVE_FOLLOW_KILLS);
const MS_PER_KILL = 20_000;

/**
 * Writes numbered transactions and follows them into a journal, whose last whole line is the stored cursor. Values are
 * replaced and keys deleted, so that compaction has much to take.
 */
const PROGRAM = `
  const journal = directory + "/journal";
  const text = fs.existsSync(journal) ? fs.readFileSync(journal, "utf8") : "";
  const whole = text.slice(0, text.lastIndexOf("\\n") + 1);
  if (whole !== text) fs.truncateSync(journal, Buffer.byteLength(whole));
  const since = Number(whole.trim().split("\\n").at(-1).split(" ")[0]);
  const db = await shop();
  const out = fs.openSync(journal, "a");
  let n = Number(db.getText("n") ?? 0);
  const follows = async () => {
    for await (const { number, records } of db.follow({ since, retain: "journal" })) {
      const numbers = records.filter((it) => it.key === "n").map((it) => Buffer.from(it.value).toString());
      fs.writeSync(out, number + " " + numbers.join(",") + " " + records.length + "\\n");
      // Slower than the writer at times.
      if (number % 7 === 0) await new Promise((resolve) => setTimeout(resolve, number % 3));
    }
  };
  follows().catch((error) => { console.error(error); process.exit(1); });
  for (;;) {
    for (let burst = 0; burst < 1 + (n % 20); burst++) {
      n++;
      db.transaction(() => {
        db.set("n", String(n));
        if (n % 3 === 0) db.delete("key " + (n - 2) % 50);
        else db.set("key " + n % 50, new Uint8Array(n % 2 === 0 ? 20_000 : 30));
      }, { note: "" });
    }
    if (n % 11 === 0) await db.flushed;
    if (n % 97 === 0) await db.compact();
    await new Promise((resolve) => setImmediate(resolve));
    fs.writeSync(1, "\\n");
  }`;

describe("following across kills", () => {
  test(
    `${KILLS} kills: a follower that resumes from its cursor sees each commit once`,
    async () => {
      const directory = folder();
      const journal = join(directory, "journal");
      const next = random(31);
      for (let round = 0; round < KILLS; round += 1) {
        const program = start(directory, PROGRAM);
        await hasOutput(program);
        await turn(next(120));
        program.child.kill("SIGKILL");
        const { stderr } = await program.ended;
        expect(stderr, `round ${round}`).toBe("");
      }
      const db = await open("shop", { storage: file(directory) });
      const text = readFileSync(journal, "utf8");
      const lines = text.slice(0, text.lastIndexOf("\n")).split("\n");
      const seen = lines.map((line) => Number(line.split(" ")[1]));
      let since = Number(lines.at(-1)?.split(" ")[0]);
      const until = db.lastCommit;
      for (const tx of db.log({ since, until })) {
        if (tx.moved) continue;
        since = tx.number;
        for (const { key, value } of tx) {
          if (key === "n") seen.push(Number(new TextDecoder().decode(value)));
        }
      }
      expect(seen).toStrictEqual(seen.map((_, index) => index + 1));
      expect(seen.length).toBe(Number(db.getText("n")));
      assert(seen.length > KILLS, `${seen.length} transactions`);
      // The mark has moved along, so the file has not kept all that was written.
      expect(db.stats().retained.map((mark) => mark.name)).toStrictEqual(["journal"]);
      assert(db.stats().fileBytes < seen.length * 10_000, `${db.stats().fileBytes} bytes`);
      await db.close();
    },
    KILLS * MS_PER_KILL,
  );
});
