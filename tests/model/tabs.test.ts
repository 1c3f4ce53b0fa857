import { assert, describe, test } from "vitest";
import { context } from "../support/context.js";
import { random } from "../support/values.js";
import { type Budget, type Program, World } from "./tabs.js";

const NOTHING: Budget = {
  crashes: 0,
  resignations: 0,
  drops: 0,
  doubles: 0,
  whiles: 0,
  ages: 0,
  giveUps: 0,
  deploys: 0,
  readers: 0,
  sleeps: 0,
  renewals: 0,
};

/** The most worlds that are visited in one case. */
const MOST_WORLDS = 200_000;

/** Visits every reachable world, and runs each to its end. Returns their number. */
function tryAll(
  programs: readonly Program[],
  budget: Partial<Budget>,
  versions?: readonly number[],
): number {
  const seen = new Set<string>();
  const paths: number[][] = [[]];
  for (let path = paths.pop(); path !== undefined; path = paths.pop()) {
    const names: string[] = [];
    const world = new World(programs, { ...NOTHING, ...budget }, versions);
    try {
      for (const step of path) {
        const event = world.event(step);
        names.push(event.name);
        event.happen();
      }
      const key = world.key();
      if (seen.has(key)) continue;
      seen.add(key);
      assert(seen.size <= MOST_WORLDS, `more than ${MOST_WORLDS} worlds`);
      world.check();
      for (const { number } of world.events()) paths.push([...path, number]);
      world.finish();
    } catch (error) {
      throw new Error(`${(error as Error).message}, after: ${names.join("; ")}`, { cause: error });
    } finally {
      world.close();
    }
  }
  return seen.size;
}

type Case = [programs: Program[], budget: Partial<Budget>, versions?: number[]];

const CASES: Readonly<Record<string, Case>> = {
  "a write, and two crashes at any step": [[["w"]], { crashes: 2, whiles: 1 }],
  "two writes of two turns, and a crash at any step": [[["w", "w"]], { crashes: 1 }],
  "two writes of two turns and a lost message": [[["w", "w"]], { drops: 1, whiles: 1 }],
  "two writes of two turns and a repeated message": [[["w", "w"]], { doubles: 1 }],
  "a repeated write while owners crash": [[["w"]], { crashes: 1, doubles: 2 }],
  "writes and a read of one turn, and the owner's crash": [[["wrw"]], { crashes: 1, whiles: 1 }],
  "a read after a write, and any message lost": [[["w", "r"]], { drops: 2, whiles: 1 }],
  "a cancelled write, a later write, and a crash": [[["w", "w"]], { giveUps: 1, crashes: 1 }],
  "a write beyond its deadline": [[["w"]], { ages: 1, crashes: 1, doubles: 1 }],
  "a resignation during writes": [[["w", "w"]], { resignations: 1 }],
  "a resignation and a crash": [[["w"]], { resignations: 1, crashes: 1 }],
  "a cancelled write, and an expired client record": [
    [["w", "w"]],
    { giveUps: 1, ages: 1, doubles: 1 },
  ],
  "two clients, and the owner's crash": [[["w"], ["w"]], { crashes: 1 }],
  "two clients and a lost message": [[["w"], ["r"]], { drops: 1, whiles: 1 }],
  "a write that a service worker refuses while owners crash": [[["w"]], { crashes: 1, readers: 1 }],
  "a write that a service worker refuses, and a resignation": [
    [["w"]],
    { resignations: 1, readers: 1 },
  ],
  "a newer build while an older one writes": [[["w"]], { deploys: 1 }, [1, 2]],
  "a newer build while messages of an older one are repeated": [
    [["w"]],
    { deploys: 1, doubles: 1 },
    [1, 2],
  ],
  "a newer build, and a crash at any step": [[["w"]], { deploys: 1, crashes: 1 }, [1, 2]],
  "a write after a watch, and crashes": [[["vw"]], { crashes: 1, drops: 1 }],
  "a watch, two writes, and any message lost": [[["v", "ww"]], { drops: 1, whiles: 1 }],
  "a watch and writes, and any message repeated": [[["wv", "w"]], { doubles: 1 }],
  "a watch, a write, and a resignation": [[["v", "w"]], { resignations: 1 }],
  "a watch while another client writes, and a crash": [[["vw"], ["w"]], {}],
  "a watch begun by a service worker, and a write": [[["vw"]], { readers: 1 }],
  "an expired watch, and writes": [[["v", "w", "w"]], { sleeps: 1 }],
  "an expired watch, and a lost message": [[["v", "w"]], { sleeps: 1, drops: 1 }],
  "an expired watch, and a repeated message": [[["v", "ww"]], { sleeps: 1, doubles: 1 }],
  "a watch renewed while it expires": [[["v", "w"]], { sleeps: 1, renewals: 1 }],
  "a watch that expires twice, and the owner's crash": [[["v", "w"]], { sleeps: 2, crashes: 1 }],
  "expired watches of two clients": [[["v"], ["w"]], { sleeps: 1 }],
  "a watch answered by a service worker, and its renewal": [
    [["v"]],
    { readers: 1, crashes: 1, renewals: 1 },
  ],
  "rows after a watch, and crashes": [[["lw"]], { crashes: 1, drops: 1 }],
  "rows, two writes, and any message lost": [[["l", "ww"]], { drops: 1, whiles: 1 }],
  "rows and writes, and any message repeated": [[["wl", "w"]], { doubles: 1 }],
  "rows, a write, and a resignation": [[["l", "w"]], { resignations: 1 }],
  "rows while another client writes": [[["lw"], ["w"]], {}],
  "rows begun by a service worker, and a write": [[["lw"]], { readers: 1 }],
  "expired rows, and a lost message": [[["l", "w"]], { sleeps: 1, drops: 1 }],
  "rows renewed while they expire": [[["l", "w"]], { sleeps: 1, renewals: 1 }],
  "rows that expire twice, and the owner's crash": [[["l", "w"]], { sleeps: 2, crashes: 1 }],
  "two builds, and a write of the newer one": [[["w"], ["r"]], {}, [2, 1]],
};

describe("every order of events", () => {
  for (const [name, [programs, budget, versions]] of Object.entries(CASES)) {
    test(`protocol: every order of events ends correctly with ${name}`, () => {
      const worlds = tryAll(programs, budget, versions);
      console.error(`    ${worlds} worlds: ${name}`);
      assert(worlds > 20);
    });
  }
});

describe("long random runs", () => {
  test("protocol: random runs with many clients and faults apply each write once, in order, or report that they did not", () => {
    const runs = context().thorough ? 1_000 : 100;
    for (let seed = 1; seed <= runs; seed += 1) {
      const next = random(seed);
      const programs = Array.from({ length: 1 + next(3) }, () =>
        Array.from(
          { length: 1 + next(6) },
          () => ["w", "r", "ww", "wr", "wwrw", "vw", "v", "lw", "l"][next(9)] as string,
        ),
      );
      const mishaps = () => next(4);
      const versions = programs.map(() => 1 + next(2));
      const budget = {
        crashes: mishaps(),
        resignations: mishaps(),
        drops: mishaps() * 2,
        doubles: mishaps() * 2,
        whiles: mishaps() * 3,
        ages: next(2),
        giveUps: mishaps(),
        deploys: next(2),
        readers: next(3),
        sleeps: mishaps(),
        renewals: mishaps(),
      };
      // Half of the runs have one build only.
      const world = new World(programs, budget, seed % 2 === 0 ? versions : []);
      try {
        for (let steps = 0; steps < 400; steps += 1) {
          const events = world.events();
          if (events.length === 0) break;
          events[next(events.length)]?.happen();
          world.check();
        }
        world.finish();
      } catch (error) {
        throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
      } finally {
        world.close();
      }
    }
  });
});
