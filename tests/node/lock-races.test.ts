import { readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { forgedLock, linkText, lockOf, NAME, openAndClose } from "./support/locks.js";
import { folder, Holder } from "./support/processes.js";

describe("processes racing for a stale lock", () => {
  const STARTERS = 8;
  const ROUNDS = 20;

  for (const full of [false, true]) {
    const where = full ? "on a full disk" : "with space on the disk";
    test(`${where} never hold it together, and each gets its turn, in twenty rounds of eight`, async () => {
      const directory = folder();
      const stale = await forgedLock(directory, { pid: String(process.pid), started: "1" });
      const starters = await Promise.all(
        Array.from({ length: STARTERS }, (_, index) =>
          full && index > 0 ? Holder.start("--delays", "--full") : Holder.start("--delays"),
        ),
      );
      for (let round = 0; round < ROUNDS; round += 1) {
        rmSync(lockOf(directory), { force: true });
        if (full) symlinkSync(linkText(stale), lockOf(directory));
        else writeFileSync(lockOf(directory), stale);
        const results = await Promise.all(
          starters.map((starter) => starter.run("race", { directory, name: NAME })),
        );
        expect(results.filter(({ together }) => together !== 0).length, `round ${round}`).toBe(0);
        expect(readdirSync(directory), `round ${round}`).toStrictEqual(["shop.varve"]);
      }
    });
  }

  test("the race survives holders that are killed one after the other", async () => {
    const directory = folder();
    const starters = await Promise.all(
      Array.from({ length: STARTERS }, () => Holder.start("--delays")),
    );
    const results = await Promise.all(
      starters.map((starter, index) =>
        starter
          .run("race", { directory, name: NAME, isKilled: index % 2 === 0 })
          .catch((error) => ({ together: error.code === "ENDED" ? 0 : 1, refused: 0 })),
      ),
    );
    expect(results.filter(({ together }) => together !== 0).length).toBe(0);
    await openAndClose(directory);
  });
});
