/** The worker of that page. */

import { serve } from "varve";

export default serve("bench");
