"""Read by every Python that Spark starts for a test: makes it import the installed pyspark.

Spark puts an archive of its sources first on the path, and each new worker would compile them again.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith(("pyspark.zip", "-src.zip"))]
