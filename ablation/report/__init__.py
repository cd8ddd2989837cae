"""From a results file to tables, tests, plots and a page. It loads pandas, scipy and matplotlib, but no torch."""
