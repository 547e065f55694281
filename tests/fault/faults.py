def look(bench): return {}
def cases(bench, options): return []
