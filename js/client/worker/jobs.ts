/**
 * Long work of an owner for clients, such as `compact`: it is not part of a message's commit, reports progress,
 * and ends when its client cancels it. A client repeats unanswered requests. The work is done once while the
 * owner is the same, and starts again with the next owner. Questions about the past are jobs too, without progress.
 */

import { Database } from "../../database/database.js";
import { CLOSED } from "../../session/call-guard.js";
import type { CompactProgress, ExportProgress } from "../../session/options.js";
import { monotonicNow } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import { HISTORY } from "../protocol/history-pages.js";
import type { ClientProgress, Outcome, Request } from "../protocol/messages.js";
import type { ServedCollections } from "./collection-handlers.js";
import { historyJob } from "./history-jobs.js";
import { SnapshotLeases } from "./snapshot-leases.js";

interface JobContext {
  readonly signal: AbortSignal;
  readonly report: (progress: ClientProgress) => void;
  readonly deadline: number;
  readonly leases: SnapshotLeases;
  readonly args: readonly unknown[];
}

const CALLS: Readonly<Record<string, (db: Database, context: JobContext) => Promise<unknown>>> = {
  compact: (db, { signal, report }) =>
    db.compact({ signal, onProgress: (progress) => report({ doing: "compacting", ...progress }) }),
  verify: (db, { signal, report }) =>
    db.verify({ signal, onProgress: (progress) => report({ doing: "verifying", ...progress }) }),
  export: (db, { signal, report }) => {
    const onProgress = (progress: ExportProgress) => report({ doing: "exporting", ...progress });
    return new Response(db.export({ signal, onProgress })).blob();
  },
  pack: (db, { signal, report, args }) => {
    const onProgress = (progress: CompactProgress) => report({ doing: "packing", ...progress });
    return db.pack({ before: args[0] as number, signal, onProgress });
  },
  [HISTORY]: (db, context) => historyJob(db, context, context.args),
};

/** The number of finished jobs that are remembered, for clients that have not received the answer. */
const MAX_REMEMBERED_JOBS = 64;

interface Job {
  readonly stop: AbortController;
  respond: (outcome: Outcome) => void;
  outcome: Outcome | undefined;
}

/** All long work of one owner. */
export class JobRunner {
  private readonly db: Database;
  /** Reports progress; `undefined` when no job runs any more. */
  private readonly report: (progress: ClientProgress | undefined) => void;
  /** The jobs by client and request, in the order in which they began. */
  private readonly all: Map<string, Job>;
  private running: number;
  private readonly leases: SnapshotLeases;

  constructor(
    db: Database,
    collections: ServedCollections,
    report: (progress: ClientProgress | undefined) => void,
  ) {
    this.db = db;
    this.report = report;
    this.all = new Map();
    this.running = 0;
    this.leases = new SnapshotLeases(db, collections);
  }

  /** Starts a job, or continues one that has started. The last requester is answered. */
  do(client: number, request: Request, respond: Job["respond"]): void {
    const { id, deadline } = request;
    const name = nameOf(client, id);
    const known = this.all.get(name);
    if (known !== undefined) {
      known.respond = respond;
      if (known.outcome !== undefined) respond(known.outcome);
    } else if (monotonicNow() < deadline) {
      const job: Job = { stop: new AbortController(), respond, outcome: undefined };
      this.all.set(name, job);
      this.run(name, request, job);
    }
  }

  /** Cancels a job for its client. */
  stop(client: number, id: number): void {
    this.all.get(nameOf(client, id))?.stop.abort();
  }

  /** Ends all jobs without an answer: clients ask the next owner for them. */
  close(): void {
    for (const job of this.all.values()) {
      job.respond = () => {};
      job.stop.abort();
    }
    this.leases.stop();
  }

  private async run(name: string, request: Request, job: Job): Promise<void> {
    const { call, args, deadline } = request;
    const hasProgress = call !== HISTORY;
    if (hasProgress) this.running += 1;
    const { leases } = this;
    const { signal } = job.stop;
    try {
      const work = CALLS[call] as (typeof CALLS)[string];
      job.outcome = {
        value: await work(this.db, { signal, report: this.report, deadline, args, leases }),
      };
    } catch (error) {
      job.outcome = { error: toWire(error) };
    }
    if (hasProgress) {
      this.running -= 1;
      if (this.running === 0) this.report(undefined);
    } else {
      // It may be done again, and its answer is too large to be remembered.
      this.all.delete(name);
    }
    // What this owner does not answer, the next one does.
    if ((Database.sessionOf(this.db).guard.gate & CLOSED) !== 0) return;
    job.respond(job.outcome);
    for (const [finished, { outcome }] of this.all) {
      if (this.all.size <= MAX_REMEMBERED_JOBS) break;
      if (outcome !== undefined) this.all.delete(finished);
    }
  }
}

/** Whether a request is a job, which is not done within a turn. */
export function isJob({ call }: Request): boolean {
  return Object.hasOwn(CALLS, call);
}

function nameOf(client: number, id: number): string {
  return `${client}/${id}`;
}
