/**
 * What an owner does for clients that takes longer than a turn: no part of a message's commit, told of while
 * it goes on, and ended when its client wants it no more. A client repeats what is not answered; it is
 * done once as long as the owner is the same, and from the beginning by the next one.
 */

import type { Database } from "../../database/database.js";
import type { ExportProgress } from "../../session/options.js";
import { monotonicNow } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import type { ClientProgress, Outcome, Request } from "../protocol/messages.js";

interface Help {
  readonly signal: AbortSignal;
  readonly report: (progress: ClientProgress) => void;
}

const CALLS: Readonly<Record<string, (db: Database, help: Help) => Promise<unknown>>> = {
  compact: (db, { signal, report }) =>
    db.compact({ signal, onProgress: (progress) => report({ doing: "compacting", ...progress }) }),
  verify: (db, { signal, report }) =>
    db.verify({ signal, onProgress: (progress) => report({ doing: "verifying", ...progress }) }),
  export: (db, { signal, report }) => {
    const onProgress = (progress: ExportProgress) => report({ doing: "exporting", ...progress });
    return new Response(db.export({ signal, onProgress })).blob();
  },
};

/** So many that are over are remembered, for clients that have not heard of it. */
const REMEMBERED = 64;

interface Job {
  readonly stop: AbortController;
  respond: (outcome: Outcome) => void;
  outcome: Outcome | undefined;
}

/** All long work of one owner. */
export class JobRunner {
  private readonly db: Database;
  /** `undefined` when nothing is done any more. */
  private readonly report: (progress: ClientProgress | undefined) => void;
  /** By client and number, in the order in which it was begun. */
  private readonly all: Map<string, Job>;
  private running: number;

  constructor(db: Database, report: (progress: ClientProgress | undefined) => void) {
    this.db = db;
    this.report = report;
    this.all = new Map();
    this.running = 0;
  }

  /** Begins it, or if it has begun goes on. The last who asks for it is answered. */
  do(client: number, { id, call, deadline }: Request, respond: Job["respond"]): void {
    const name = nameOf(client, id);
    const known = this.all.get(name);
    if (known !== undefined) {
      known.respond = respond;
      if (known.outcome !== undefined) respond(known.outcome);
    } else if (monotonicNow() < deadline) {
      const one: Job = { stop: new AbortController(), respond, outcome: undefined };
      this.all.set(name, one);
      this.run(call, one);
    }
  }

  /** Its client does not want it any more. */
  stop(client: number, id: number): void {
    this.all.get(nameOf(client, id))?.stop.abort();
  }

  /** Ends all of it. Nobody is told: the next owner is asked for it. */
  close(): void {
    for (const one of this.all.values()) {
      one.respond = () => {};
      one.stop.abort();
    }
  }

  private async run(call: string, one: Job): Promise<void> {
    this.running += 1;
    const { signal } = one.stop;
    try {
      const work = CALLS[call] as (typeof CALLS)[string];
      one.outcome = { value: await work(this.db, { signal, report: this.report }) };
    } catch (error) {
      one.outcome = { error: toWire(error) };
    }
    this.running -= 1;
    if (this.running === 0) this.report(undefined);
    one.respond(one.outcome);
    for (const [name, { outcome }] of this.all) {
      if (this.all.size <= REMEMBERED) break;
      if (outcome !== undefined) this.all.delete(name);
    }
  }
}

/** Whether it is done here and not in a turn. */
export function isJob({ call }: Request): boolean {
  return Object.hasOwn(CALLS, call);
}

function nameOf(client: number, id: number): string {
  return `${client}/${id}`;
}
