"""A minute of traffic: four at the start, then two joins and two leaves."""

MINUTE = """# end: 60.0
time,vehicle,kind
1.0,a,join
1.0,b,join
1.0,c,join
1.0,d,join
20.0,e,join
30.0,a,leave
40.0,f,join
50.0,b,leave
"""
