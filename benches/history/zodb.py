"""ZODB's own storage with the transactions of a plan: `write FOLDER` makes its file, `walk FOLDER` and `content FOLDER`
iterate it and print the milliseconds and what they found."""

import json
import os
import sys
import time
import zlib

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FileIterator

how, folder = sys.argv[1:]
path = os.path.join(folder, "zodb.fs")

if how == "write":
    with open(os.path.join(folder, "plan.json")) as file:
        plan = json.load(file)
    with open(os.path.join(folder, "noise.bin"), "rb") as file:
        noise = file.read()
    storage = FileStorage(path, create=True)
    record = 0
    for number, lengths in enumerate(plan["transactions"]):
        transaction = TransactionMetaData(b"bench", plan["notes"][number].encode())
        storage.tpc_begin(transaction)
        for length in lengths:
            at = record * plan["step"] % plan["offsets"]
            oid = b"%08d" % (record + 1)
            storage.store(oid, b"\0" * 8, noise[at : at + length], "", transaction)
            record += 1
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
    storage.close()
    sys.exit()

transactions = records = count = firsts = crc = 0
notes = 0
start = time.perf_counter()
if how == "content":
    for transaction in FileIterator(path):
        transactions += 1
        for record in transaction:
            records += 1
            count += len(record.data)
            firsts += record.data[0]
            crc = zlib.crc32(record.data, zlib.crc32(record.oid, crc))
else:
    for transaction in FileIterator(path):
        transactions += 1
        for record in transaction:
            records += 1
            count += len(record.data)
            firsts += record.data[0]
ms = (time.perf_counter() - start) * 1e3
found = {"ms": ms, "transactions": transactions, "records": records}
print(json.dumps({**found, "bytes": count, "firsts": firsts, "crc": crc}))
