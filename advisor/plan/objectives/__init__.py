"""What a plan can be best at: a class for each objective, and the table of them all.

`names` lists the names for the command line and imports nothing. `objective` and `fleet_objective`
say what an objective answers; `completion`, `pace` and `energy` hold the objectives, and `table`
finds them by name. A new objective is a name in `names` and a class in one of these three files.
"""
