/** The client records in an open database. */

import { Database } from "../../database/database.js";
import { beginUndo, type Undoing, type UndoOptions } from "../../database/undo.js";
import { clientOfKey, RECORD_PREFIX, recordKey } from "../protocol/client-record.js";
import { toWire } from "../protocol/errors.js";
import { UNDO } from "../protocol/history-pages.js";
import type { Request, RequestBatch, WireError } from "../protocol/messages.js";
import type { ClientRecordStore } from "../protocol/request-log.js";
import type { TransactionRequest } from "../protocol/transaction-request.js";
import { perform, type ServedDatabase } from "./handlers.js";

/** The engine's own keyspace (FORMAT.md, section 8). */
const OWN = 1;

/** The records read in one step. */
const PAGE = 1_024;

const VERSION_KEY = Uint8Array.from("version", (letter) => letter.charCodeAt(0));

/** The last version of the application that has owned the database (FORMAT.md, section 8); 0 if none has. */
export function storedVersion(db: Database): number {
  const bytes = Database.sessionOf(db).engine.get(VERSION_KEY, OWN)?.slice();
  return bytes === undefined ? 0 : Number(new DataView(bytes.buffer).getBigUint64(0, true));
}

export function storeVersion(db: Database, version: number): void {
  const session = Database.sessionOf(db);
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(version), true);
  session.transaction(() => session.engine.set(VERSION_KEY, bytes, OWN));
  db.commit();
}

/** The record store of an owner, in its database. */
export class DatabaseClientRecords implements ClientRecordStore {
  private readonly db: Database;
  private readonly served: ServedDatabase;
  /** The undo that the current batch consists of. */
  private undoing: Undoing | undefined;

  constructor(served: ServedDatabase) {
    this.db = served.db;
    this.served = served;
    this.undoing = undefined;
  }

  atomically<T>(body: () => T, batch?: RequestBatch): T {
    const [request] = batch?.requests.length === 1 ? batch.requests : [];
    const noteOf = request && this.noteOf(request);
    const options = noteOf && { note: noteOf() as string };
    const session = Database.sessionOf(this.db);
    const transaction = () => session.transaction(body, options, batch?.client);
    if (request?.call !== UNDO) return transaction();
    const undoing = this.beginUndo(request);
    this.undoing = undoing;
    try {
      return transaction();
    } finally {
      this.undoing = undefined;
      undoing.end();
    }
  }

  /** Begins an undo before its transaction, within which it could take no snapshot. */
  private beginUndo({ args }: Request): Undoing {
    // If this fails, other requests are undone too, so it is no outcome of the undo alone.
    this.db.commit();
    const [number, options] = args as [number, UndoOptions?];
    try {
      return beginUndo(() => Database.sessionOf(this.db), number, options);
    } catch (error) {
      const apply = () => {
        throw error;
      };
      return { apply, end() {} };
    }
  }

  perform(request: Request): unknown {
    const { undoing } = this;
    const work = () =>
      request.call === UNDO && undoing ? undoing.apply() : perform(this.served, request);
    return request.write === 0 ? work() : this.atomically(work);
  }

  /**
   * Divides a batch, so that each undo and each request with a note is a batch, and so a transaction, of its own.
   */
  batchesOf(batch: RequestBatch): RequestBatch[] {
    const batches: Request[][] = [];
    let isAlone = true;
    for (const request of batch.requests) {
      const staysAlone = request.call === UNDO || this.noteOf(request) !== undefined;
      if (isAlone || staysAlone) batches.push([request]);
      else batches.at(-1)?.push(request);
      isAlone = staysAlone;
    }
    return batches.length < 2 ? [batch] : batches.map((requests) => ({ ...batch, requests }));
  }

  /** How to make the note of a request, if it has one. The database checks the note. */
  private noteOf({ call, args }: Request): (() => unknown) | undefined {
    if (call === "commitIf") {
      const { note } = args[0] as TransactionRequest;
      return note === undefined ? undefined : () => note;
    }
    if (call === UNDO) {
      const note = (args[1] as UndoOptions | undefined)?.note;
      return note === undefined ? undefined : () => note;
    }
    const [name, ...rest] = args as [string, ...never[]];
    const { notes } = this.served;
    const make = call === "call" && Object.hasOwn(notes, name) ? notes[name] : undefined;
    return make && (() => make(...rest) ?? null);
  }

  load(client: number): Uint8Array | undefined {
    return Database.sessionOf(this.db).engine.get(recordKey(client), OWN)?.slice();
  }

  save(client: number, record: Uint8Array): void {
    Database.sessionOf(this.db).engine.set(recordKey(client), record, OWN);
  }

  clients(): number[] {
    const found: number[] = [];
    const upper = RECORD_PREFIX.slice();
    upper[upper.length - 1] = (upper.at(-1) as number) + 1;
    const { engine } = Database.sessionOf(this.db);
    let lower: Uint8Array<ArrayBuffer> = RECORD_PREFIX;
    for (;;) {
      const range = { lower, upper, lowerExcluded: false, upperIncluded: false, reverse: false };
      const { bytes, numbers, count } = engine.scan(range, PAGE, false, OWN);
      for (let i = 0; i < count; i++) {
        found.push(clientOfKey(bytes.subarray(numbers[i], numbers[i + 1])));
      }
      if (count === 0) return found;
      lower = recordKey((found.at(-1) as number) + 1);
    }
  }

  forget(client: number): void {
    Database.sessionOf(this.db).engine.remove(recordKey(client), OWN);
  }

  wire(error: unknown): WireError {
    return toWire(error);
  }
}
