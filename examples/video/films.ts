// The worker's file: it owns the database, which has nothing but blobs.

import { serve } from "varve";

export default serve("films", { memory: 4 << 20 });
